//! Dialogues of PMI-1 ([`v1`]) and PMI-2 ([`v2`]) as foreign clients and servers hold them, byte for byte.

mod v1;
mod v2;
