//! The library as a whole: whether MPI is initialised, who may call it, and its end.

use std::cell::OnceCell;
use std::ffi::c_int;
use std::fmt;
use std::path::Path;
use std::sync::{Mutex, OnceLock, PoisonError, RwLock};

use crate::abi::{Handle, Interface};
use crate::calls::{Calls, Code};
use crate::entered::Entered;
use crate::error::{Error, LoadError};
use crate::loader::{self, Loaded};
use crate::thread_level::{LEVELS, ThreadLevel};

/// An MPI library in this process.
pub struct Mpi {
    loaded: Loaded,
    level: OnceLock<ThreadLevel>,
    /// Held while MPI is called: shared, or alone where calls must not overlap, and when MPI is finalized.
    gate: RwLock<()>,
}

/// How far MPI is in this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// Nobody has initialised it.
    Before,
    /// It can be used.
    Initialised,
    /// It was finalized.
    Finalized,
}

static FOUND: OnceLock<Mpi> = OnceLock::new();

impl fmt::Debug for Mpi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Loaded {
            interface, path, ..
        } = &self.loaded;
        write!(f, "Mpi({}, {interface})", path.display())
    }
}

impl Mpi {
    /// The MPI that this process has loaded, because it is linked with it or has called something that loads it;
    /// `None` if there is none. Loads nothing.
    ///
    /// # Errors
    ///
    /// There is one, but it cannot be used.
    pub fn in_process() -> Result<Option<&'static Self>, LoadError> {
        Self::found_or(|| loader::present().transpose())
    }

    /// The MPI that [`Mpi::in_process`] or [`Mpi::load`] has found before. Looks for nothing.
    pub fn known() -> Option<&'static Self> {
        FOUND.get()
    }

    /// The MPI that this process has loaded, or else loads one: the library that is `named`, or that
    /// [`crate::ENV_LIBRARY`] names, or the one that speaks the launcher's language, as far as the environment says.
    ///
    /// # Errors
    ///
    /// There is none, or it cannot be used.
    pub fn load(named: Option<&str>) -> Result<&'static Self, LoadError> {
        let present = || loader::present().unwrap_or_else(|| loader::load(named));
        let found = Self::found_or(|| present().map(Some))?;
        found.ok_or_else(|| unreachable!("it was found, or loaded"))
    }

    fn found_or(
        find: impl FnOnce() -> Result<Option<Loaded>, LoadError>,
    ) -> Result<Option<&'static Self>, LoadError> {
        static FINDING: Mutex<()> = Mutex::new(());
        if let Some(mpi) = FOUND.get() {
            return Ok(Some(mpi));
        }
        let _alone = FINDING.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(mpi) = FOUND.get() {
            return Ok(Some(mpi));
        }
        let loaded = find()?;
        Ok(loaded.map(|loaded| {
            FOUND.get_or_init(|| Self {
                loaded,
                level: OnceLock::new(),
                gate: RwLock::new(()),
            })
        }))
    }

    /// Which binary interface it has.
    pub fn interface(&self) -> Interface {
        self.loaded.interface
    }

    /// Its file.
    pub fn path(&self) -> &Path {
        &self.loaded.path
    }

    /// What it says of itself, which may be several lines (`MPI_Get_library_version`).
    pub fn library_version(&self) -> &str {
        &self.loaded.version
    }

    /// How far MPI is.
    pub fn state(&self) -> State {
        let calls = self.calls();
        match () {
            () if calls.is_finalized() => State::Finalized,
            () if calls.is_initialized() => State::Initialised,
            () => State::Before,
        }
    }

    /// Initialises MPI (`MPI_Init_thread`), and gives the thread level that it gives. Collective.
    ///
    /// # Errors
    ///
    /// It is initialised already, by whomever, or was finalized; or MPI refuses. Most libraries end the process then.
    pub fn init(&self, level: ThreadLevel) -> Result<ThreadLevel, Error> {
        const CALL: &str = "MPI_Init_thread";
        let gate = self.gate.write().unwrap_or_else(PoisonError::into_inner);
        match self.state() {
            State::Before => {}
            State::Initialised => return Err(Error::InitialisedBefore),
            State::Finalized => return Err(Error::Finalized { call: CALL }),
        }
        let wanted = self.loaded.constants.thread_levels[level as usize];
        let provided = self
            .calls()
            .init_thread(wanted)
            .map_err(|code| Error::Mpi {
                call: CALL,
                code,
                text: "MPI does not say why".into(),
            })?;
        let level = self.level_of(provided);
        let level = *self.level.get_or_init(|| level);
        let entered = Entered::alone(gate);
        let code = self
            .calls()
            .return_errors(&entered, self.loaded.constants.world);
        self.check("MPI_Comm_set_errhandler", &entered, code)?;
        Ok(level)
    }

    /// The thread level that MPI gives (`MPI_Query_thread`).
    ///
    /// # Errors
    ///
    /// It is not initialised, or was finalized.
    pub fn thread_level(&self) -> Result<ThreadLevel, Error> {
        const CALL: &str = "MPI_Query_thread";
        match self.state() {
            State::Before => Err(Error::NotInitialised { call: CALL }),
            State::Initialised => Ok(self.level()),
            State::Finalized => Err(Error::Finalized { call: CALL }),
        }
    }

    /// Whether this thread is the one that has initialised MPI (`MPI_Is_thread_main`); `false` where it is not
    /// initialised.
    pub fn is_main_thread(&self) -> bool {
        self.state() == State::Initialised && self.calls().is_thread_main()
    }

    /// Ends MPI (`MPI_Finalize`), after calls of other threads that are under way. Collective.
    ///
    /// # Errors
    ///
    /// As [`Mpi::world`].
    pub fn finalize(&self) -> Result<(), Error> {
        const CALL: &str = "MPI_Finalize";
        let _gate = self.gate.write().unwrap_or_else(PoisonError::into_inner);
        self.check_callable(CALL)?;
        // After it MPI has no texts.
        match self.calls().finalize() {
            0 => Ok(()),
            code => Err(Error::Mpi {
                call: CALL,
                code,
                text: "MPI does not say why".into(),
            }),
        }
    }

    /// Ends all processes of the job with `status` (`MPI_Abort`). Returns only if it cannot.
    pub fn abort(&self, status: i32) -> Error {
        const CALL: &str = "MPI_Abort";
        if let Err(why) = self.check_callable(CALL) {
            return why;
        }
        // A thread that waits in a call must not keep another from ending the job.
        let entered = Entered::without_gate();
        let code = self
            .calls()
            .abort(&entered, self.loaded.constants.world, status);
        self.error(CALL, &entered, code)
    }

    /// Whether [`Mpi::progress`] does something here: this thread is the one that has initialised MPI, and MPI is neither
    /// finalized nor of a level at which another thread might be in a call ([`ThreadLevel::Serialized`]). Nobody but
    /// this thread can change that.
    pub fn is_driven_here(&self) -> bool {
        thread_local! {
            /// Remembered, since MPI ends a process that asks while another thread finalizes.
            static IS_MAIN: OnceCell<bool> = const { OnceCell::new() };
        }
        self.state() == State::Initialised
            && self.level() != ThreadLevel::Serialized
            && IS_MAIN.with(|known| *known.get_or_init(|| self.calls().is_thread_main()))
    }

    /// Has MPI do what others wait for: messages of a process move only while it is in a call of MPI. Does nothing
    /// where not [`Mpi::is_driven_here`].
    pub fn progress(&self) {
        if !self.is_driven_here() {
            return;
        }
        // The only thread that may finalize is this one.
        let entered = Entered::without_gate();
        // What is wrong with MPI the program's own calls will say.
        let _ = self.calls().poll(&entered, self.loaded.constants.world);
    }

    /// Seconds since some moment of the past (`MPI_Wtime`).
    ///
    /// # Errors
    ///
    /// As [`Mpi::world`].
    pub fn wtime(&self) -> Result<f64, Error> {
        let _entered = self.enter("MPI_Wtime")?;
        Ok(self.calls().wtime())
    }

    pub(crate) fn calls(&self) -> &dyn Calls {
        &*self.loaded.calls
    }

    /// Before a call.
    pub(crate) fn enter(&self, call: &'static str) -> Result<Entered<'_>, Error> {
        let shared = self.gate.read().unwrap_or_else(PoisonError::into_inner);
        self.check_callable(call)?;
        if self.level() != ThreadLevel::Serialized {
            return Ok(Entered::shared(shared));
        }
        drop(shared);
        let alone = self.gate.write().unwrap_or_else(PoisonError::into_inner);
        self.check_callable(call)?;
        Ok(Entered::alone(alone))
    }

    fn check_callable(&self, call: &'static str) -> Result<(), Error> {
        match self.state() {
            State::Before => return Err(Error::NotInitialised { call }),
            State::Finalized => return Err(Error::Finalized { call }),
            State::Initialised => {}
        }
        let level = self.level();
        match level <= ThreadLevel::Funneled && !self.calls().is_thread_main() {
            true => Err(Error::Thread { call, level }),
            false => Ok(()),
        }
    }

    /// To be called only when MPI is initialised.
    fn level(&self) -> ThreadLevel {
        *self
            .level
            .get_or_init(|| match self.calls().query_thread() {
                Ok(provided) => self.level_of(provided),
                Err(_) => ThreadLevel::Single,
            })
    }

    fn level_of(&self, provided: c_int) -> ThreadLevel {
        let numbers = self.loaded.constants.thread_levels;
        let at = numbers.iter().rposition(|&number| number <= provided);
        LEVELS[at.unwrap_or(0)]
    }

    /// The error of a call that has answered `code`, if it is one.
    pub(crate) fn check(
        &self,
        call: &'static str,
        entered: &Entered<'_>,
        code: Code,
    ) -> Result<(), Error> {
        match code {
            0 => Ok(()),
            code => Err(self.error(call, entered, code)),
        }
    }

    pub(crate) fn error(&self, call: &'static str, entered: &Entered<'_>, code: Code) -> Error {
        Error::Mpi {
            call,
            code,
            text: self.calls().error_text(entered, code),
        }
    }

    pub(crate) fn no_request(&self) -> Handle {
        self.loaded.constants.no_request
    }

    pub(crate) fn world_handle(&self) -> Handle {
        self.loaded.constants.world
    }
}
