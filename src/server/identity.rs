//! Which process this is: what INFO shows of it, and how to start it again.

use std::ffi::{CStr, OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;
use std::{env, path};

use super::config::Config;
use crate::base::ids::NodeId;

/// Fixed when the program starts.
#[derive(Clone, Debug)]
pub struct Identity {
    /// 40 hex digits, new at each start.
    pub run_id: String,
    /// The name the program was called by.
    pub program: OsString,
    /// The program as an absolute path.
    pub executable: PathBuf,
    /// System, release and machine, as `uname` reports them.
    pub os: String,
    /// What starts the program again as it was started: paths in it are absolute.
    arguments: Vec<OsString>,
}

impl Identity {
    /// Must be made before the working directory changes.
    pub fn new(
        program: OsString,
        config: &Config,
        options: &[OsString],
    ) -> Result<Self, getrandom::Error> {
        let mut random = [0; 20];
        getrandom::fill(&mut random)?;
        let file = config.config_file.iter().map(|path| path.clone().into_os_string());
        Ok(Self {
            // A run ID has the shape of a node's.
            run_id: NodeId::from_random(random).to_string(),
            executable: absolute(&program),
            program,
            os: os_name(),
            arguments: file.chain(options.iter().cloned()).collect(),
        })
    }

    /// Turns the process into a fresh start of the same program: same process ID, same
    /// arguments. Only returns when that failed. Files and sockets close on the way.
    pub fn start_again(&self) -> io::Error {
        Command::new(&self.executable).arg0(&self.program).args(&self.arguments).exec()
    }
}

/// The program as a path that holds in any directory. A bare name is looked up by the
/// kernel's own record of what it runs.
fn absolute(program: &OsStr) -> PathBuf {
    let path = PathBuf::from(program);
    if path.components().count() > 1 {
        path::absolute(&path).unwrap_or(path)
    } else {
        env::current_exe().unwrap_or(path)
    }
}

fn os_name() -> String {
    // SAFETY: utsname is plain bytes, for which zero is a value; uname fills it with texts
    // that end in a zero byte.
    let names = unsafe {
        let mut names: libc::utsname = std::mem::zeroed();
        libc::uname(&mut names);
        names
    };
    let text = |field: &[libc::c_char]| {
        let bytes: Vec<u8> = field.iter().map(|&c| c.cast_unsigned()).collect();
        CStr::from_bytes_until_nul(&bytes).unwrap_or_default().to_string_lossy().into_owned()
    };
    [text(&names.sysname), text(&names.release), text(&names.machine)].join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_names_its_machine_in_three_words() {
        let config = Config { config_file: Some("/etc/disque.conf".into()), ..Config::default() };
        let options = ["--port".into(), "1".into()];
        let identity = Identity::new("./server".into(), &config, &options).expect("random bytes");
        assert_eq!(identity.os.split(' ').count(), 3);
        assert_eq!(identity.run_id.len(), 40);
        assert!(identity.executable.is_absolute());
        assert_eq!(identity.arguments, ["/etc/disque.conf", "--port", "1"]);
    }
}
