//! Huge pages for heaps: how large they are here, how many are left, and whether the kernel makes any
//! by itself.
//!
//! Pages *set aside* (hugetlb) belong to nobody until a heap takes them. A node's heaps take all that
//! they may ever touch when they are made, so that a program never dies for lack of one.
//! *Transparent* ones are made when memory is touched, if the kernel is allowed to and has a free
//! stretch of memory; else usual ones take their place. A page that was touched anywhere takes its
//! whole size, so PEs that use little of their heaps use more memory than with usual pages.

use crate::machine::Size;
use crate::settings::HeapPages;
use crate::sys::page_size;

/// Huge pages that are set aside on this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HugePages {
    /// Bytes of a page.
    pub size: u64,
    /// Pages in all.
    pub total: u64,
    /// Pages that can be had.
    pub free: u64,
}

impl HugePages {
    /// Reads /proc/meminfo. `overcommit`: how many pages the kernel may make beyond those set aside.
    fn parse(meminfo: &str, overcommit: u64) -> Option<Self> {
        let field = |name: &str| {
            let line = meminfo
                .lines()
                .find(|l| l.strip_prefix(name).is_some_and(|r| r.starts_with(':')))?;
            line.split_whitespace().nth(1)?.parse::<u64>().ok()
        };
        let size = field("Hugepagesize")?.checked_mul(1024)?;
        let more = overcommit.saturating_sub(field("HugePages_Surp").unwrap_or(0));
        let taken = field("HugePages_Rsvd").unwrap_or(0);
        size.is_power_of_two().then_some(Self {
            size,
            total: field("HugePages_Total")?,
            free: (field("HugePages_Free")? + more).saturating_sub(taken),
        })
    }

    /// What this machine has; `None` if its kernel knows no huge pages.
    pub fn read() -> Option<Self> {
        let meminfo = std::fs::read_to_string("/proc/meminfo").ok()?;
        let overcommit = std::fs::read_to_string("/proc/sys/vm/nr_overcommit_hugepages");
        let overcommit = overcommit.ok().and_then(|n| n.trim().parse().ok());
        Self::parse(&meminfo, overcommit.unwrap_or(0))
    }
}

/// Why heaps do not get the huge pages that were asked for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PagesError {
    /// Fewer are free than all heaps of the node could touch.
    #[error(
        "the heaps of this node need {need} huge pages of {}, but {free} are free \
         (SHMEM_HEAP_PAGES=huge); set more aside with sysctl -w vm.nr_hugepages={}, lower \
         SHMEM_SYMMETRIC_SIZE, or set SHMEM_HEAP_PAGES to default",
        Size(*size), total + need.saturating_sub(*free)
    )]
    TooFew {
        /// Pages of all its heaps.
        need: u64,
        /// Pages that can be had.
        free: u64,
        /// Pages that are set aside in all.
        total: u64,
        /// Bytes of one.
        size: u64,
    },
    /// The kernel has none at all.
    #[error(
        "the kernel has no huge pages to set aside (SHMEM_HEAP_PAGES=huge); set it to \
         transparent or default"
    )]
    Unknown,
}

/// The word in brackets: how a file in /sys marks the choice in force.
fn chosen(text: &str) -> Option<&str> {
    text.split_once('[')?
        .1
        .split_once(']')
        .map(|(word, _)| word)
}

/// Whether memory files get huge pages if they ask, by the setting for all sizes and, where the kernel
/// has it (since 6.14), the one for the usual huge size.
fn transparent(general: &str, of_size: Option<&str>) -> bool {
    let allows = |word: &str| matches!(word, "always" | "within_size" | "advise" | "force");
    match of_size.and_then(chosen) {
        None | Some("inherit") => chosen(general).is_some_and(allows),
        Some(word) => allows(word),
    }
}

const THP: &str = "/sys/kernel/mm/transparent_hugepage";

/// Bytes of the huge pages that the kernel makes by itself.
fn transparent_size() -> Option<usize> {
    let size = std::fs::read_to_string(format!("{THP}/hpage_pmd_size")).ok()?;
    let size: usize = size.trim().parse().ok()?;
    size.is_power_of_two().then_some(size)
}

/// A sentence for the user if this choice of pages has no effect on this machine.
pub fn without_effect(pages: HeapPages) -> Option<String> {
    if pages != HeapPages::Transparent {
        return None;
    }
    let general = std::fs::read_to_string(format!("{THP}/shmem_enabled")).unwrap_or_default();
    let of_size = transparent_size().and_then(|size| {
        let name = format!("{THP}/hugepages-{}kB/shmem_enabled", size >> 10);
        std::fs::read_to_string(name).ok()
    });
    (!transparent(&general, of_size.as_deref())).then(|| {
        format!(
            "SHMEM_HEAP_PAGES=transparent has no effect: the kernel makes no huge pages for shared \
             memory; allow it with echo advise > {THP}/shmem_enabled"
        )
    })
}

/// Bytes of a page of a node's heaps, as far as their layout goes.
///
/// # Errors
/// Pages that must be set aside beforehand do not exist here.
pub(crate) fn of_heaps(pages: HeapPages) -> Result<usize, PagesError> {
    let size = match pages {
        HeapPages::Default => None,
        HeapPages::Transparent => transparent_size(),
        HeapPages::Huge => Some(
            HugePages::read()
                .and_then(|huge| usize::try_from(huge.size).ok())
                .ok_or(PagesError::Unknown)?,
        ),
    };
    Ok(size.unwrap_or(0).max(page_size()))
}

/// The error for heaps of `len` bytes in all that did not get their huge pages.
pub(crate) fn too_few(len: usize) -> PagesError {
    let Some(HugePages { size, total, free }) = HugePages::read() else {
        return PagesError::Unknown;
    };
    PagesError::TooFew {
        need: (len as u64).div_ceil(size),
        free,
        total,
        size,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMINFO: &str = "MemTotal: 100 kB\nHugePages_Total:      30\nHugePages_Free:       20\n\
                           HugePages_Rsvd:        5\nHugePages_Surp:        1\nHugepagesize:       2048 kB\n";

    #[test]
    fn reserved_pages_are_not_free() {
        let with = |overcommit| HugePages::parse(MEMINFO, overcommit).unwrap();
        let want = HugePages {
            size: 2 << 20,
            total: 30,
            free: 15,
        };
        assert_eq!(with(0), want);
        assert_eq!(with(11).free, 25);
        assert_eq!(HugePages::parse("MemTotal: 100 kB\n", 0), None);
        let odd = MEMINFO.replace("2048", "3");
        assert_eq!(HugePages::parse(&odd, 0), None);
    }

    #[test]
    fn the_error_says_how_many_to_set_aside() {
        let e = PagesError::TooFew {
            need: 130,
            free: 15,
            total: 30,
            size: 2 << 20,
        };
        let e = e.to_string();
        for part in ["130 huge pages of 2.0 MiB", "15 are free", "=145"] {
            assert!(e.contains(part), "{part} in {e}");
        }
    }

    #[test]
    fn the_kernel_says_whether_it_makes_huge_pages() {
        let general = |word| format!("always within_size [{word}] never deny force");
        assert!(transparent(&general("advise"), None));
        assert!(!transparent(&general("never"), None));
        assert!(!transparent(&general("deny"), None));
        assert!(!transparent("", None));
        let inherits = "always [inherit] within_size advise never";
        assert!(transparent(&general("always"), Some(inherits)));
        assert!(!transparent(&general("never"), Some(inherits)));
        let own = "always inherit within_size [advise] never";
        assert!(transparent(&general("never"), Some(own)));
        let none = "always inherit within_size advise [never]";
        assert!(!transparent(&general("always"), Some(none)));
    }

    #[test]
    fn heaps_have_whole_pages() {
        let usual = page_size();
        assert_eq!(of_heaps(HeapPages::Default).unwrap(), usual);
        let huge = of_heaps(HeapPages::Transparent).unwrap();
        assert!(huge.is_power_of_two() && huge >= usual);
        assert_eq!(without_effect(HeapPages::Default), None);
        assert_eq!(without_effect(HeapPages::Huge), None);
    }
}
