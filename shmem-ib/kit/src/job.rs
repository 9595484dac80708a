//! A job whose PEs are threads of the test: each has an HCA, an endpoint, a segment, and a
//! progress thread, as a process of a real job has.
//!
//! The unit tests of `connect` that look inside of an endpoint compile this file a second time, as a
//! module of that crate: of endpoints it uses what is public.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use shmem_connect::UdAddress;
use shmem_connect::atomic::{AtomicOp, Width};
use shmem_connect::endpoint::{
    ConnError, Context, ContextId, Directory, Endpoint, EndpointConfig, Lookup, Source,
};
use shmem_soft::{SoftConfig, SoftHca};
use shmem_verbs::Hca;

/// 64-bit words of a segment: 5 MiB.
pub const WORDS: usize = 5 << 17;

/// A PE.
pub struct Pe<H: Hca = SoftHca> {
    /// Its number.
    pub number: u32,
    // Dropped before the segment that it registers.
    /// Its endpoint.
    pub endpoint: Arc<Endpoint<H>>,
    segment: Arc<Vec<AtomicU64>>,
    stop: Arc<AtomicBool>,
    hca: Arc<H>,
    progress: Option<JoinHandle<()>>,
}

/// A job, which closes its endpoints when it is dropped.
pub struct Job<H: Hca = SoftHca> {
    /// The PEs, in order.
    pub pes: Vec<Pe<H>>,
    /// Their addresses.
    pub table: Arc<AddressTable>,
}

/// The addresses of a job, which a test may change.
#[derive(Default)]
pub struct AddressTable(
    /// By PE; what is not there is pending.
    pub Mutex<Vec<Option<Lookup>>>,
);

impl Directory for AddressTable {
    fn lookup(&self, pe: u32) -> Lookup {
        let entries = self.0.lock().unwrap();
        entries
            .get(pe as usize)
            .cloned()
            .flatten()
            .unwrap_or(Lookup::Pending)
    }

    fn wait(&self, _pe: u32, max: Duration) {
        std::thread::sleep(max);
    }

    fn node(&self, pe: u32) -> u32 {
        pe / 2
    }

    fn describe(&self, pe: u32) -> String {
        format!("PE {pe} (node {})", pe / 2)
    }
}

impl Job {
    /// `n` PEs on software HCAs.
    pub fn new(n: u32) -> Self {
        Self::with(n, |_, _| {})
    }

    /// The same, each PE configured as `change` says.
    pub fn with(n: u32, change: impl Fn(&mut EndpointConfig, &mut SoftConfig)) -> Self {
        let job = Self::bare(n, &change);
        job.pes.iter().for_each(Pe::register);
        job
    }

    /// A second job in which only PE 0 has registered its memory.
    pub fn unregistered(&self, n: u32, deadline: Duration) -> Self {
        let job = Self::bare(n, &|config, _| {
            config.job_id = [9; 16];
            config.connect_deadline = deadline;
        });
        job.pes[0].register();
        job
    }

    fn bare(n: u32, change: &dyn Fn(&mut EndpointConfig, &mut SoftConfig)) -> Self {
        Self::on(n, |number, config| {
            let mut soft = SoftConfig::loopback(u64::from(number) + 1000);
            change(config, &mut soft);
            soft.faults.seed += u64::from(number);
            SoftHca::open(&soft).unwrap()
        })
    }

    /// What the table says of a PE from now on.
    pub fn set_address(&self, pe: u32, lookup: Lookup) {
        self.table.0.lock().unwrap()[pe as usize] = Some(lookup);
    }

    /// Where a PE is.
    pub fn address(&self, pe: u32) -> UdAddress {
        self.pes[pe as usize].endpoint.ud_address()
    }
}

impl<H: Hca> Job<H> {
    /// A job without memory, each PE on the HCA that `open` gives it.
    pub fn on(n: u32, open: impl Fn(u32, &mut EndpointConfig) -> H) -> Self {
        Self::opened(n, &open)
    }

    // `on`, compiled once for all tests.
    fn opened(n: u32, open: &dyn Fn(u32, &mut EndpointConfig) -> H) -> Self {
        let table = Arc::new(AddressTable::default());
        let pes: Vec<Pe<H>> = (0..n).map(|i| Pe::new(i, n, &table, open)).collect();
        let addresses = pes
            .iter()
            .map(|pe| Some(Lookup::Ready(pe.endpoint.ud_address())));
        *table.0.lock().unwrap() = addresses.collect();
        Self { pes, table }
    }

    /// Runs `body` for every PE, each in a thread of its own.
    pub fn run(&self, body: impl Fn(&Pe<H>) + Sync) {
        self.each(&body);
    }

    // `run`, compiled once for all tests.
    fn each(&self, body: &(dyn Fn(&Pe<H>) + Sync)) {
        std::thread::scope(|scope| {
            for pe in &self.pes {
                scope.spawn(move || body(pe));
            }
        });
    }
}

impl<H: Hca> Pe<H> {
    fn new(
        number: u32,
        n_pes: u32,
        table: &Arc<AddressTable>,
        open: &dyn Fn(u32, &mut EndpointConfig) -> H,
    ) -> Self {
        let mut config = EndpointConfig {
            pe: number,
            n_pes,
            job_id: [1; 16],
            job_key: &[2; 32],
            seed: u64::from(number),
            connect_deadline: Duration::from_secs(20),
            spin_rounds: 20,
            ..EndpointConfig::default()
        };
        let hca = Arc::new(open(number, &mut config));
        let endpoint = Endpoint::new(Arc::clone(&hca), config).unwrap();
        endpoint.set_directory(Arc::clone(table) as Arc<dyn Directory>);
        let stop = Arc::new(AtomicBool::new(false));
        let progress = serve(&endpoint, &stop, TURN);
        let segment = Arc::new((0..WORDS).map(|_| AtomicU64::new(0)).collect());
        Self {
            number,
            endpoint,
            segment,
            stop,
            hca,
            progress: Some(progress),
        }
    }

    /// Offers the segment to peers.
    pub fn register(&self) {
        let base = self.segment.as_ptr().cast_mut().cast::<u8>();
        // SAFETY: the segment outlives the endpoint, and is accessed by atomics only.
        unsafe { self.endpoint.register(base, WORDS * 8).unwrap() };
    }

    /// The word at `offset` bytes of this PE's own segment.
    pub fn word(&self, offset: u64) -> u64 {
        self.segment[offset as usize / 8].load(Ordering::Acquire)
    }

    /// The address of byte `offset` of this PE's own segment.
    pub fn place(&self, offset: u64) -> *mut u8 {
        assert!(offset < WORDS as u64 * 8);
        self.segment
            .as_ptr()
            .cast_mut()
            .cast::<u8>()
            .wrapping_add(offset as usize)
    }

    /// Puts a word; the source may go at once.
    pub fn put_word(&self, to: u32, offset: u64, value: u64) {
        let src = std::ptr::from_ref(&value).cast();
        // SAFETY: the source may go as soon as this returns.
        unsafe {
            self.endpoint
                .put(to, offset, src, 8, Source::UntilReturn)
                .unwrap()
        };
    }

    /// Gets a word.
    pub fn get_word(&self, from: u32, offset: u64) -> u64 {
        let mut value = 0u64;
        let dst = std::ptr::from_mut(&mut value).cast();
        // SAFETY: blocking, so the destination lives long enough.
        unsafe { self.endpoint.get(from, offset, dst, 8, true).unwrap() };
        value
    }

    /// Puts bytes; the source may go at once.
    pub fn put_bytes(&self, to: u32, offset: u64, bytes: &[u8]) {
        // SAFETY: the source may go as soon as this returns.
        unsafe {
            self.endpoint
                .put(to, offset, bytes.as_ptr(), bytes.len(), Source::UntilReturn)
                .unwrap()
        };
    }

    /// Gets bytes.
    pub fn get_bytes(&self, from: u32, offset: u64, bytes: &mut [u8]) {
        let (dst, len) = (bytes.as_mut_ptr(), bytes.len());
        // SAFETY: blocking, so the destination lives long enough.
        unsafe { self.endpoint.get(from, offset, dst, len, true).unwrap() };
    }

    /// Its HCA.
    pub fn hca(&self) -> Arc<H> {
        Arc::clone(&self.hca)
    }

    /// Ends this PE as a crash would: nobody is told.
    pub fn die(&mut self) {
        self.stop_progress();
        self.endpoint.abort();
    }

    /// Stands still, as a process that was stopped: it answers nothing until [`Self::resume`].
    pub fn pause(&mut self) {
        self.stop_progress();
    }

    /// Goes on.
    pub fn resume(&mut self) {
        self.sleep_at_most(TURN);
    }

    /// Has the progress thread sleep so long if nothing ends its sleeps.
    pub fn sleep_at_most(&mut self, max: Duration) {
        self.stop_progress();
        self.stop.store(false, Ordering::Relaxed);
        self.progress = Some(serve(&self.endpoint, &self.stop, max));
    }

    fn stop_progress(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.hca.wake();
        if let Some(thread) = self.progress.take() {
            thread.join().unwrap();
        }
    }
}

/// Operations of the default context, on segment 0 if they name none, as tests like to write them.
#[allow(missing_docs)]
pub trait Plain<H: Hca> {
    fn plain(&self) -> Context<'_, H>;

    /// # Safety
    /// As of [`Context::put`].
    unsafe fn put(
        &self,
        pe: u32,
        offset: u64,
        src: *const u8,
        len: usize,
        stays: Source,
    ) -> Result<(), ConnError> {
        // SAFETY: by the caller's promise.
        unsafe { self.plain().put(pe, 0, offset, src, len, stays) }.map(drop)
    }

    /// # Safety
    /// As of [`Context::get`].
    unsafe fn get(
        &self,
        pe: u32,
        offset: u64,
        dst: *mut u8,
        len: usize,
        blocking: bool,
    ) -> Result<(), ConnError> {
        // SAFETY: by the caller's promise.
        unsafe { self.plain().get(pe, 0, offset, dst, len, blocking) }
    }

    fn fetch_add(&self, pe: u32, offset: u64, add: u64) -> Result<u64, ConnError> {
        self.fetch_add_in(pe, 0, offset, add)
    }

    fn fetch_add_in(&self, pe: u32, segment: u8, offset: u64, add: u64) -> Result<u64, ConnError> {
        let op = AtomicOp::Add(add);
        self.plain().atomic(pe, segment, offset, Width::W8, op)
    }

    fn compare_swap(&self, pe: u32, offset: u64, compare: u64, new: u64) -> Result<u64, ConnError> {
        let op = AtomicOp::CompareSwap { compare, new };
        self.plain().atomic(pe, 0, offset, Width::W8, op)
    }

    fn add_nbi(&self, pe: u32, offset: u64, add: u64) -> Result<(), ConnError> {
        let op = AtomicOp::Add(add);
        self.plain().atomic_plain(pe, 0, offset, Width::W8, op)
    }

    fn quiet(&self) -> Result<(), ConnError> {
        self.plain().quiet()
    }

    fn fence(&self) {
        self.plain().fence();
    }
}

impl<H: Hca> Plain<H> for Endpoint<H> {
    fn plain(&self) -> Context<'_, H> {
        self.context(ContextId::DEFAULT)
    }
}

/// How long a progress thread sleeps if nothing happens.
const TURN: Duration = Duration::from_millis(100);

/// The progress thread of a PE.
fn serve<H: Hca>(
    endpoint: &Arc<Endpoint<H>>,
    stop: &Arc<AtomicBool>,
    max: Duration,
) -> JoinHandle<()> {
    let (endpoint, stop) = (Arc::clone(endpoint), Arc::clone(stop));
    std::thread::spawn(move || {
        while !stop.load(Ordering::Relaxed) {
            endpoint.progress_wait(max);
        }
    })
}

impl<H: Hca> Drop for Job<H> {
    fn drop(&mut self) {
        self.run(|pe| pe.endpoint.close());
    }
}

impl<H: Hca> Drop for Pe<H> {
    fn drop(&mut self) {
        self.stop_progress();
    }
}
