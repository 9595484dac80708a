//! The commands of PMI and their replies, each described once for both versions: a row of the table
//! has the names, what the command consists of, and its reply. What only one version has, or
//! has under another name, and what clients and servers in use do differently, is up to the codecs.

mod codecs;
mod command;
mod reply;

use std::borrow::Cow;

use super::codec::{
    Absent, By, Bytes, Codec, Flag, Hex, HexUpTo, Mark, Maybe, Number, Or, Text, Whole, messages,
    name,
};
use super::data::{MAX_MESSAGE, Operation};
use super::fields::Fields;
use super::init::{InitFacts, Versions};
use super::spawn;
use super::v2::DATA_PART;
use super::writer::Writer;
use super::{InitLine, InitReply, MAX_KEY, MAX_VALUE, WireError};
use crate::question::SpawnRequest;
use codecs::{
    Facts, Found, KvsName, LastWords, Lengths, OperationName, Port, Present, RingValue, WithoutInfo,
};

/// The facts that a PE learns from `fullinit-response`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FullInitReply<'a> {
    /// Rank of the PE in its job.
    pub rank: u32,
    /// Number of PEs of the job.
    pub size: u32,
    /// Number of the program among those of the job; -1 if the launcher does not say.
    pub appnum: i32,
    /// Whether a debugger controls the job.
    pub debugged: bool,
    /// Whether the client library should talk about what it does.
    pub verbose: bool,
    /// The job that spawned this one, if any.
    pub spawner: Option<Cow<'a, str>>,
    /// How often the PE's process has been started again; above 0, the server also sends the next
    /// field. Only our server does.
    pub restarts: u32,
    /// Number of the PE's next collective operation: its former processes joined all before it.
    pub first_request: u64,
}

/// The lengths in the reply to `get_maxes`, in bytes, with the NUL that C clients put behind a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Maxes {
    /// Of the name of a key-value space.
    pub kvsname: u32,
    /// Of a key.
    pub key: u32,
    /// Of a value.
    pub value: u32,
}

impl Maxes {
    /// What common servers offer, and ours.
    pub const OURS: Self = Self {
        kvsname: 256,
        key: MAX_KEY as u32,
        value: MAX_VALUE as u32,
    };
}

/// What a line `cmd=set` of the port model says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fact {
    /// Number of PEs of the job.
    Size(u32),
    /// Rank of the PE.
    Rank(u32),
    /// How much the client library should talk about what it does.
    Debug(i32),
    /// Something else, which need not interest anybody.
    Other,
}

const REQUEST: Number = Number("request", "the number of a request");

messages! {
    /// The commands that are served, those of the extensions among them.
    pub enum Command<'a>;

    /// The answers, one for each command that has any.
    pub enum Reply {
        /// A fact of the port model; three follow the reply to `initack`: size, rank, debug.
        Set(Fact),
        /// To any command: it failed.
        Refused {
            /// The command, as the client named it, or by its [`Verb::name`].
            command: Cow<'a, str>,
            /// Reason as a number, never 0.
            rc: i32,
            /// Reason in words, in which PMI-1 has `_` for a blank; may be empty.
            message: Cow<'a, str>,
        },
    }

    /// `init`: the version that the client speaks; the first line in all versions.
    Init ("init" "response_to_init" _) (version: InitLine = Versions)
        => Init (reply: InitReply = InitFacts);

    /// `initack`: before `init` in the port model; asks for rank and size.
    InitAck ("initack" "initack" _) {
        /// Number by which the launcher knows the process (`PMI_ID`).
        id: u32 = Number("pmiid", "the number of a process"),
    } => InitAck;

    /// `fullinit`: the PE introduces itself.
    FullInit (_ _ "fullinit") {
        /// The job id that the PE found in its environment.
        job_id: Option<Cow<'a, str>> = Maybe(Text("pmijobid")),
        /// The rank that the PE found in its environment.
        rank: Option<u32> = Maybe(Number("pmirank", "a rank")),
        /// Whether the client uses thread marks.
        threaded: bool = Flag("threaded"),
    } => FullInit (facts: FullInitReply<'a> = Facts);

    /// `get_maxes`: the lengths of names, keys and values.
    GetMaxes ("get_maxes" "maxes" _) => Maxes (maxes: Maxes = Lengths);

    /// `get_appnum`: the number of the program among those of the job.
    GetAppnum ("get_appnum" "appnum" _)
        => Appnum (number: i32 = Number("appnum", "a number"));

    /// `get_universe_size`: how many processes could run; -1 if the launcher does not say.
    GetUniverseSize ("get_universe_size" "universe_size" _)
        => UniverseSize (size: i32 = Number("size", "a number"));

    /// `get_my_kvsname`, `job-getid`: the id of the job, which is the name of its key-value space.
    JobGetId ("get_my_kvsname" "my_kvsname" "job-getid")
        => JobId (id: Cow<'a, str> = By(Text("kvsname"), Text("jobid")));

    /// `info-getjobattr`: an attribute of the whole job.
    JobAttr (_ _ "info-getjobattr") {
        /// Name of the attribute, for example `PMI_process_mapping`.
        key: Cow<'a, [u8]> = Bytes("key"),
    } => JobAttr (value: Option<Cow<'a, [u8]>> = Found);

    /// `info-putnodeattr`: publish a key to the PEs of this node, at once.
    PutNodeAttr (_ _ "info-putnodeattr") {
        /// Name of the attribute.
        key: Cow<'a, [u8]> = Bytes("key"),
        /// Value of the attribute.
        value: Cow<'a, [u8]> = Bytes("value"),
    } => NodeAttrPut;

    /// `info-getnodeattr`.
    NodeAttr (_ _ "info-getnodeattr") {
        /// Name of the attribute.
        key: Cow<'a, [u8]> = Bytes("key"),
        /// Withhold the reply until a PE of this node puts the key.
        wait: bool = Flag("wait"),
    } => NodeAttr (value: Option<Cow<'a, [u8]>> = Found);

    /// `put`, `kvs-put`: visible to all PEs after the next fence.
    KvsPut ("put" "put_result" "kvs-put") {
        /// The job whose space it is; PMI-1 alone names it.
        job_id: Option<Cow<'a, str>> = By(KvsName, Absent(None)),
        /// The key.
        key: Cow<'a, [u8]> = Bytes("key"),
        /// The value.
        value: Cow<'a, [u8]> = Whole("value"),
    } => KvsPut;

    /// `get`, `kvs-get`: a value of the key-value space; with PMI-1 also an attribute of the job.
    KvsGet ("get" "get_result" "kvs-get") {
        /// The job whose space is read; absent means the client's own.
        job_id: Option<Cow<'a, str>> = By(KvsName, Maybe(Text("jobid"))),
        /// A hint which rank has put the key; -1 for none.
        source: i64 = By(Absent(-1), Or(Number("srcid", "a rank or -1"), -1)),
        /// The key.
        key: Cow<'a, [u8]> = Whole("key"),
        /// Extension: get it from that rank as soon as it has put it, fenced or not.
        direct: bool = By(Absent(false), Mark("direct")),
    } => KvsGet (value: Option<Cow<'a, [u8]>> = Found);

    /// `barrier_in`, `kvs-fence`: collective; answered when all have called it.
    KvsFence ("barrier_in" "barrier_out" "kvs-fence") {
        /// With PMI-1.2 of which PEs it is, `WORLD`, `NODE` or ranks with commas, and a tag behind a
        /// colon.
        group: Option<Cow<'a, [u8]>> = By(Maybe(Bytes("group")), Absent(None)),
    } => KvsFence {
        /// With PMI-1.2 the tag of the barrier.
        tag: Option<u32> = By(Maybe(Number("tag", "a number")), Absent(None)),
    };

    /// `finalize`.
    Finalize ("finalize" "finalize_ack" "finalize") => Finalize;

    /// `abort`: has no reply.
    Abort ("abort" _ "abort") {
        /// Whether the whole job is meant (it always is, here).
        is_world: bool = By(Absent(true), Or(Flag("isworld"), true)),
        /// Exit status asked for, if the client sent one.
        exit_code: Option<i32> = Maybe(Number("exitcode", "an exit status")),
        /// Text for the user; may be empty.
        message: Cow<'a, [u8]> = LastWords,
    };

    /// `publish_name`, `name-publish`.
    NamePublish ("publish_name" "publish_result" "name-publish") {
        /// The service.
        name: Cow<'a, [u8]> = By(Whole("service"), Bytes("name")),
        /// Where the service is to be found.
        port: Cow<'a, [u8]> = By(Whole("port"), WithoutInfo("port")),
    } => NamePublished;

    /// `lookup_name`, `name-lookup`: where the service is to be found.
    NameLookup ("lookup_name" "lookup_result" "name-lookup") {
        /// The service.
        name: Cow<'a, [u8]> = By(Whole("service"), WithoutInfo("name")),
    } => NameFound (port: Cow<'a, [u8]> = Port);

    /// `unpublish_name`, `name-unpublish`.
    NameUnpublish ("unpublish_name" "unpublish_result" "name-unpublish") {
        /// The service.
        name: Cow<'a, [u8]> = By(Whole("service"), WithoutInfo("name")),
    } => NameUnpublished;

    /// `spawn`: answered when the processes run. With PMI-1 it is not a line but several blocks.
    Spawn ("spawn" "spawn_result" "spawn") (request: SpawnRequest = spawn::Programs) => Spawned {
        /// The new job; servers of PMI-1 may not tell.
        job_id: Option<Cow<'a, str>> = By(Maybe(Text("jobid")), Present(Text("jobid"))),
        /// For each process 0 or an error, if the server tells.
        errcodes: Vec<i32> = spawn::Errcodes,
    };

    /// `ring` (`PMIX_Ring`): collective; answered when complete.
    Ring (_ _ "ring") {
        /// Number of values that the client stands for: 1.
        count: u32 = Or(Number("ring-count", "a number"), 1),
        /// The value that the PE to the left gets, at most [`MAX_VALUE`] bytes.
        left: Cow<'a, [u8]> = RingValue("ring-left"),
        /// The value that the PE to the right gets, at most [`MAX_VALUE`] bytes. Clients send the
        /// same value twice.
        right: Cow<'a, [u8]> = RingValue("ring-right"),
    } => Ring {
        /// Rank of the PE in the ring.
        rank: u32 = Number("ring-count", "a rank"),
        /// What the PE to the left gave for its right.
        left: Cow<'a, [u8]> = Bytes("ring-left"),
        /// What the PE to the right gave for its left.
        right: Cow<'a, [u8]> = Bytes("ring-right"),
        /// Number of PEs in the ring, if the server tells.
        size: Option<u32> = Maybe(Number("ring-size", "a number of PEs")),
    };

    /// `job-connect`.
    JobConnect (_ _ "job-connect") {
        /// The other job.
        job_id: Cow<'a, str> = Text("jobid"),
    } => JobConnected;

    /// `job-disconnect`.
    JobDisconnect (_ _ "job-disconnect") {
        /// The other job.
        job_id: Cow<'a, str> = Text("jobid"),
    } => JobDisconnected;

    /// Extension `iallgather`: collective; answered at once with the number of the operation.
    Iallgather (_ _ "iallgather") {
        /// This PE's contribution, 1 to [`crate::wire::MAX_ALLGATHER_VALUE`] bytes.
        value: Cow<'a, [u8]> = Hex("value"),
    } => Iallgather (request: u64 = REQUEST);

    /// Extension `allgather`: collective; answered when complete and its result is published.
    Allgather (_ _ "allgather") {
        /// This PE's contribution, 1 to [`crate::wire::MAX_ALLGATHER_VALUE`] bytes.
        value: Cow<'a, [u8]> = Hex("value"),
    } => Allgather (request: u64 = REQUEST);

    /// Extension `ifence`: collective; answered at once with the number of the operation.
    Ifence (_ _ "ifence") => Ifence (request: u64 = REQUEST);

    /// Extension `wait`: answered when the operation is complete.
    Wait (_ _ "wait") {
        /// Number of the operation.
        request: u64 = REQUEST,
    } => Wait (request: u64 = REQUEST);

    /// Extension `nla`: collective; answered when complete. One part of it, or all.
    Data (_ _ "nla") {
        /// Which operation.
        operation: Operation = OperationName,
        /// Rank of its root; 0 where there is none.
        root: u32 = Or(Number("root", "a rank"), 0),
        /// What this PE gives, at most [`DATA_PART`] bytes at a time.
        value: Cow<'a, [u8]> = HexUpTo("value", DATA_PART),
        /// Whether another part follows; this one is then not answered.
        more: bool = Flag("more"),
    } => Data {
        /// Number of the operation.
        request: u64 = REQUEST,
        /// What this PE gets, at most [`DATA_PART`] bytes at a time.
        value: Cow<'a, [u8]> = HexUpTo("value", DATA_PART),
        /// Whether another part follows.
        more: bool = Flag("more"),
    };

    /// Extension `nla-send`: answered when the message has been taken.
    Send (_ _ "nla-send") {
        /// Rank of the receiver.
        to: u32 = Number("to", "a rank"),
        /// The message, at most [`MAX_MESSAGE`] bytes.
        value: Cow<'a, [u8]> = HexUpTo("value", MAX_MESSAGE),
    } => Sent;

    /// Extension `nla-recv`: answered when there is a message.
    Receive (_ _ "nla-recv") {
        /// Rank of the sender.
        from: u32 = Number("from", "a rank"),
    } => Received (message: Cow<'a, [u8]> = HexUpTo("value", MAX_MESSAGE));
}

impl InitLine {
    /// Appends the line to `out`.
    pub fn encode(self, out: &mut Vec<u8>) {
        // Numbers make a short line.
        let _ = Command::Init(self).encode_line(out);
    }
}

impl InitReply {
    /// Appends the line to `out`.
    pub fn encode(self, out: &mut Vec<u8>) {
        // Numbers make a short line.
        let _ = Reply::Init(self).encode_line(out);
    }
}

#[cfg(test)]
mod tests;
