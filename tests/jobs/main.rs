//! Whole jobs through the real `shmrun`, and under launchers of others.
//!
//! A program that jobs run lies in `../programs`, mostly under the name of the file here that starts it;
//! [`programs`] has all of them.

mod by_id;
mod c_library;
mod capture;
mod chaos;
mod conformance;
mod cores;
mod costs;
mod deaths;
mod devices;
mod differ;
mod early;
mod environment;
mod examples;
mod hangs;
mod hosts;
mod hybrid;
mod kernels;
mod launchers;
mod layouts;
mod lists;
mod lives;
mod many;
mod mishaps;
mod narrow;
mod outside;
mod pages;
mod places;
mod plain_server;
mod pmi;
mod pmi_process;
mod pmi_store;
mod programs;
mod registration;
mod seeing;
mod strangers;
mod tools;
mod transport;
mod tutorial;
mod valgrind;
mod waiting;
