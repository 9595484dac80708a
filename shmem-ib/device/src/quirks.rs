//! What single devices do otherwise than they say, or than the specification says: one row each, by vendor
//! and part. The only place that knows vendors.
//!
//! A row takes effect in two ways: what the driver has told of the device is corrected once, when it is opened
//! (`Abilities::corrected`); what cannot be said in those terms the room asks for that it concerns.

#![forbid(unsafe_code)]

use super::hardware::Atomics;

/// What is peculiar about a device.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Quirks {
    /// It takes the largest retry count, 7, for "always", and so never tells of a peer that is gone.
    pub endless_retries: bool,
    /// With what its atomics are atomic at most, where it says more.
    pub atomics: Option<Atomics>,
}

impl Quirks {
    /// Nothing.
    const NONE: Self = Self {
        endless_retries: false,
        atomics: None,
    };

    /// Of a device, by its vendor (an IEEE organisation number) and the vendor's number for the kind.
    #[must_use]
    pub fn of(vendor_id: u32, vendor_part_id: u32) -> Self {
        find(TABLE, vendor_id, vendor_part_id)
    }

    /// The largest retry count that is a count.
    #[must_use]
    pub const fn most_retries(self) -> u8 {
        if self.endless_retries { 6 } else { 7 }
    }
}

/// Devices of a vendor: one kind, or all.
struct Row {
    vendor_id: u32,
    vendor_part_id: Option<u32>,
    quirks: Quirks,
}

/// Of two rows for a device the first counts: kinds stand before whole vendors.
const TABLE: &[Row] = &[
    // Soft-RoCE, the kernel's `rdma_rxe`; before it had a number of its own, it had none.
    Row {
        vendor_id: 0x00ff_ffff,
        vendor_part_id: None,
        quirks: ENDLESS_RETRIES,
    },
    Row {
        vendor_id: 0,
        vendor_part_id: None,
        quirks: ENDLESS_RETRIES,
    },
];

const ENDLESS_RETRIES: Quirks = Quirks {
    endless_retries: true,
    ..Quirks::NONE
};

fn find(table: &[Row], vendor_id: u32, vendor_part_id: u32) -> Quirks {
    let fits = |row: &&Row| {
        row.vendor_id == vendor_id && row.vendor_part_id.is_none_or(|part| part == vendor_part_id)
    };
    table
        .iter()
        .find(fits)
        .map_or(Quirks::NONE, |row| row.quirks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_without_a_row_are_what_they_say() {
        // ConnectX-5 of Mellanox.
        let quirks = Quirks::of(0x02c9, 4119);
        assert_eq!(quirks, Quirks::default());
        assert_eq!(quirks.most_retries(), 7);
    }

    #[test]
    fn soft_roce_is_known_whatever_its_part() {
        for vendor in [0x00ff_ffff, 0] {
            for part in [0, 17] {
                assert_eq!(Quirks::of(vendor, part).most_retries(), 6);
            }
        }
    }

    #[test]
    fn rows_of_a_kind_count_before_those_of_its_vendor() {
        let row = |vendor_part_id, atomics| Row {
            vendor_id: 1,
            vendor_part_id,
            quirks: Quirks {
                atomics: Some(atomics),
                ..Quirks::NONE
            },
        };
        let table = [row(Some(2), Atomics::None), row(None, Atomics::Device)];
        let told = |part| find(&table, 1, part).atomics;
        assert_eq!(
            (told(2), told(3)),
            (Some(Atomics::None), Some(Atomics::Device))
        );
    }

    #[test]
    fn no_row_is_hidden_by_another() {
        for (i, row) in TABLE.iter().enumerate() {
            let hidden = TABLE[..i].iter().any(|other| {
                let whole = other
                    .vendor_part_id
                    .is_none_or(|p| row.vendor_part_id == Some(p));
                other.vendor_id == row.vendor_id && whole
            });
            assert!(!hidden, "row {i} of vendor {:#x}", row.vendor_id);
        }
    }
}
