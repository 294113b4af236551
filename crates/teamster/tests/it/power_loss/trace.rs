//! What a program asked of the system, recorded by strace: every call with its data, and when it began and ended.

#![expect(clippy::disallowed_methods, reason = "the tracer is started as a person would start it")]

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::process::Command;

use super::disk::Before;

/// Everything that changes files, and everything by which a program tells others something.
const CALLS: &str = "open,openat,creat,close,lseek,write,pwrite64,writev,pwritev,pwritev2,ftruncate,truncate,\
    fallocate,copy_file_range,sendfile,rename,renameat,renameat2,link,linkat,symlink,symlinkat,unlink,unlinkat,\
    mkdir,mkdirat,rmdir,fsync,fdatasync,sendto,sendmsg,clone,clone3";

/// No single write is longer.
const DATA_BYTES_MAX: &str = "16777216";

/// Tells whether programs can be traced here.
pub(crate) fn is_possible() -> bool {
    let probe = Command::new("strace").args(["-f", "-o", "/dev/null", "true"]).output();
    probe.is_ok_and(|probe| probe.status.success())
}

/// Turns a command into one that is traced into `file`.
pub(crate) fn traced(command: &Command, file: &Path) -> Command {
    let mut traced = Command::new("strace");
    // -xx: all strings as hexadecimal, paths included, so that nothing in them needs care; -y: the path of each file.
    traced.args(["-f", "-qq", "--seccomp-bpf", "-y", "-xx", "-s", DATA_BYTES_MAX]);
    traced.args(["-e", "signal=none", "-e", &format!("trace={CALLS}"), "-o"]).arg(file);
    traced.arg("--").arg(command.get_program()).args(command.get_args()).env_clear();
    let set = command.get_envs().filter_map(|(name, value)| Some((name, value?)));
    traced.envs(set).stdin(std::process::Stdio::null());
    if let Some(directory) = command.get_current_dir() {
        traced.current_dir(directory);
    }
    traced
}

/// Returns each line of a record: who did something, and what.
fn lines(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let lines = text.lines().map(|line| {
        let (process, what) = line.split_once(' ').expect("a line starts with the process");
        (process, what.trim_start())
    });
    lines.filter(|(_, what)| !what.starts_with(['+', '-']))
}

/// Returns the threads of the program itself. What it starts has open files of its own under the same numbers, and writes
/// nothing that anybody was promised.
fn find_threads(text: &str) -> HashSet<&str> {
    let mut threads: HashSet<&str> =
        lines(text).next().map(|(process, _)| process).into_iter().collect();
    let mut begun = HashSet::new();
    for (process, what) in lines(text).filter(|(_, what)| what.contains("clone")) {
        let makes_thread = what.starts_with("clone") && what.contains("CLONE_THREAD");
        if what.ends_with("<unfinished ...>") {
            begun.extend(makes_thread.then_some(process));
            continue;
        }
        let has_made = makes_thread || (what.starts_with("<... clone") && begun.remove(process));
        let made = what.rsplit_once(" = ").map(|(_, made)| made).filter(|_| has_made);
        if threads.contains(process) {
            threads.extend(made.and_then(|made| made.split_whitespace().next()));
        }
    }
    threads
}

/// One system call.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) name: String,
    arguments: Vec<Argument>,
    /// `None` if the process was killed in it: then it may have been done in part.
    pub(crate) result: Option<i64>,
}

#[derive(Debug)]
struct Argument {
    /// As strace wrote it, without strings.
    plain: String,
    /// All strings in it, one after the other.
    data: Vec<u8>,
}

impl Call {
    /// Returns the bytes of an argument: a path, or what is written.
    pub(crate) fn data(&self, n: usize) -> &[u8] {
        self.arguments.get(n).map_or(&[], |argument| &argument.data)
    }

    /// Returns what is plain in an argument, such as flags.
    pub(crate) fn plain(&self, n: usize) -> &str {
        self.arguments.get(n).map_or("", |argument| &argument.plain)
    }

    pub(crate) fn number(&self, n: usize) -> u64 {
        let plain = self.plain(n);
        plain.parse().unwrap_or_else(|_| panic!("{}: {plain:?} is not a number", self.name))
    }

    /// Returns the open file that an argument names, and its path.
    pub(crate) fn file(&self, n: usize) -> (i64, Vec<u8>) {
        let (number, path) = self.plain(n).split_once('<').unwrap_or((self.plain(n), ""));
        (number.parse().unwrap_or(-1), unescape(path.trim_end_matches('>').as_bytes()))
    }
}

/// The two moments of a call. Between them it may or may not have had its effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moment {
    Begin,
    End,
}

/// All calls of one or more runs of a program, in the order of time.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    pub(crate) calls: Vec<Call>,
    /// Each moment with the number of its call. strace stops a thread at both, so what one thread did before it told
    /// another is before what the other did then.
    pub(crate) moments: Vec<(Moment, usize)>,
    /// Where each run ended and what its files held then. A call in which it was killed was done, or in part, or not.
    pub(crate) ends: Vec<(usize, Before)>,
}

impl Trace {
    /// Adds what strace recorded of another run, which has left these files.
    pub(crate) fn add(&mut self, file: &Path, left: Before) {
        let text = std::fs::read_to_string(file).expect("strace leaves its record");
        let threads = find_threads(&text);
        let mut unfinished: HashMap<&str, (usize, String)> = HashMap::new();
        for (process, what) in lines(&text) {
            let is_clone = what.trim_start_matches("<... ").starts_with("clone");
            if is_clone || !threads.contains(process) {
                continue;
            }
            if let Some(resumed) = what.strip_prefix("<... ") {
                let (_, rest) = resumed.split_once(" resumed>").expect("it says so");
                let (call, begun) = unfinished.remove(process).expect("what resumes has begun");
                self.calls[call] = parse(&(begun + rest));
                if self.calls[call].result.is_some() {
                    self.moments.push((Moment::End, call));
                }
                continue;
            }
            let call = self.calls.len();
            self.moments.push((Moment::Begin, call));
            if let Some(begun) = what.strip_suffix("<unfinished ...>") {
                // What it would have been if nothing more is heard of it.
                self.calls.push(parse(&format!("{}) = ?", begun.trim_end())));
                unfinished.insert(process, (call, begun.trim_end().to_owned()));
            } else {
                self.calls.push(parse(what));
                self.moments.push((Moment::End, call));
            }
        }
        self.ends.push((self.moments.len(), left));
    }

    /// Returns what the program told others, and from which moment on they may have heard it.
    pub(crate) fn told<'a>(&'a self, root: &Path) -> impl Iterator<Item = (usize, &'a [u8])> {
        let root = root.as_os_str().as_encoded_bytes().to_vec();
        self.moments.iter().enumerate().filter_map(move |(at, (moment, call))| {
            let call = &self.calls[*call];
            let speaks = matches!(&*call.name, "write" | "writev" | "sendto" | "sendmsg");
            let inside = || call.file(0).1.starts_with(&root);
            (*moment == Moment::Begin && speaks && !inside()).then(|| (at, call.data(1)))
        })
    }
}

/// Reads `name(argument, …) = result …`.
fn parse(text: &str) -> Call {
    let (name, rest) =
        text.split_once('(').unwrap_or_else(|| panic!("not a call: {}", start(text)));
    let (arguments, rest) = split_arguments(rest.as_bytes());
    let result = rest.split_once("= ").map_or("?", |(_, result)| result);
    let result = result.split([' ', '<']).next().unwrap_or_default();
    let result = match result.strip_prefix("0x") {
        Some(hex) => i64::from_str_radix(hex, 16).ok(),
        None => result.parse().ok(),
    };
    Call { name: name.to_owned(), arguments, result }
}

fn start(text: &str) -> String {
    text.chars().take(200).collect()
}

/// Splits at the commas between arguments and returns what follows the closing parenthesis.
fn split_arguments(text: &[u8]) -> (Vec<Argument>, &str) {
    let mut arguments = Vec::new();
    let mut argument = Argument { plain: String::new(), data: Vec::new() };
    let mut depth = 0;
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        at += 1;
        match byte {
            b'"' => {
                let length = text[at..].iter().position(|&byte| byte == b'"');
                let length = length.expect("a string ends");
                argument.data.extend(unescape(&text[at..at + length]));
                at += length + 1;
                assert!(!text[at..].starts_with(b"..."), "strace cut a string short");
                continue;
            }
            b'[' | b'{' | b'(' => depth += 1,
            b')' if depth == 0 => break,
            b']' | b'}' | b')' => depth -= 1,
            b',' if depth == 0 => {
                at += usize::from(text.get(at) == Some(&b' '));
                arguments.push(std::mem::replace(
                    &mut argument,
                    Argument { plain: String::new(), data: Vec::new() },
                ));
                continue;
            }
            _ => {}
        }
        argument.plain.push(char::from(byte));
    }
    arguments.push(argument);
    (arguments, std::str::from_utf8(&text[at..]).expect("strace writes ASCII"))
}

/// Reads `\x2f\x74…`; anything else stays as it is.
fn unescape(text: &[u8]) -> Vec<u8> {
    if !text.starts_with(b"\\x") {
        return text.to_vec();
    }
    let digit = |digit: u8| if digit <= b'9' { digit - b'0' } else { digit - b'a' + 10 };
    text.chunks_exact(4).map(|byte| digit(byte[2]) << 4 | digit(byte[3])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_read_with_their_data_and_their_two_moments() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let recorded = r#"
7  openat(AT_FDCWD<\x2f>, "\x2f\x61", O_RDWR|O_CREAT, 0600) = 3<\x2f\x61>
7  clone3({flags=CLONE_VM|CLONE_FILES|CLONE_THREAD, exit_signal=0} <unfinished ...>
7  <... clone3 resumed>, 88)         = 8
7  clone3({flags=CLONE_VM|CLONE_VFORK, exit_signal=SIGCHLD}, 88) = 9
9  close(3)                          = 0
7  pwrite64(3<\x2f\x61>, "\x41\x42", 2, 512 <unfinished ...>
8  writev(5<\x73>, [{iov_base="\x43", iov_len=1}, {iov_base="\x44\x2c", iov_len=2}], 2) = 3
7  <... pwrite64 resumed>)           = 2
8  fsync(3<\x2f\x61> <unfinished ...>
8  <... fsync resumed>)              = ?
7  mkdir("\x2f\x62", 0700)           = -1 EEXIST (File exists)
8  +++ killed by SIGKILL +++
"#;
        std::fs::write(file.path(), recorded.trim_start()).expect("it is written");
        let mut trace = Trace::default();
        trace.add(file.path(), Before::new());
        let [open, write, speak, sync, mkdir] = &trace.calls[..] else { panic!("{trace:?}") };
        assert_eq!(
            (open.data(1), open.plain(2), open.result),
            (&b"/a"[..], "O_RDWR|O_CREAT", Some(3))
        );
        assert_eq!((write.file(0), write.data(1)), ((3, b"/a".to_vec()), &b"AB"[..]));
        assert_eq!((write.number(3), write.result), (512, Some(2)));
        assert_eq!(speak.data(1), b"CD,");
        assert_eq!((sync.file(0).0, sync.result, mkdir.result), (3, None, Some(-1)));
        use Moment::{Begin, End};
        let order = [(Begin, 0), (End, 0), (Begin, 1), (Begin, 2), (End, 2), (End, 1), (Begin, 3)];
        assert_eq!(trace.moments[..7], order);
        assert_eq!(trace.told(Path::new("/a")).collect::<Vec<_>>(), [(3, &b"CD,"[..])]);
    }
}
