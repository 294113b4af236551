//! Reads the files that a user names for a run. Their text goes into prompts, and agents can put a link in their place: so
//! nothing of the hub's own files may be read here.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use teamster_hub::config;

/// More than a spec may be.
const SPEC_BYTES_MAX: u64 = 1 << 20;

/// Reads a spec or a template. `data` is the hub's data directory.
pub(super) fn read(path: &Path, data: &Path) -> anyhow::Result<String> {
    let cannot = || format!("cannot read {}", path.display());
    // A pipe in its place must not hang us.
    let no_wait = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(no_wait).open(path);
    let file = file.with_context(cannot)?;
    let about = file.metadata().with_context(cannot)?;
    if !about.is_file() {
        bail!("{} is not a file; name one with the spec", path.display());
    }
    if about.len() > SPEC_BYTES_MAX {
        bail!("{} is longer than {SPEC_BYTES_MAX} bytes; name a shorter one", path.display());
    }
    let real = real_path(&file, path).with_context(cannot)?;
    let state = config::state_root().ok();
    if is_hubs(&real, data, state.as_deref()) {
        bail!(
            "{} leads to {}, which belongs to the hub; an agent may have put a link there. Remove the link, and look for other \
             changes of that agent",
            path.display(),
            real.display()
        );
    }
    // Files there show the environment and the memory of processes.
    if ["/proc", "/sys", "/dev"].iter().any(|system| real.starts_with(system)) {
        bail!("{} leads to {}, which is no text; name a file", path.display(), real.display());
    }
    let mut text = String::new();
    file.take(SPEC_BYTES_MAX).read_to_string(&mut text).with_context(cannot)?;
    Ok(text)
}

/// Returns where an open file really is, whatever its name leads to by now.
fn real_path(file: &File, path: &Path) -> std::io::Result<PathBuf> {
    if cfg!(target_os = "linux") {
        use std::os::fd::AsRawFd;
        return std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()));
    }
    path.canonicalize()
}

/// Says whether a file is the hub's own, or another workspace's. Worktrees beside the data are agents'.
fn is_hubs(real: &Path, data: &Path, state: Option<&Path>) -> bool {
    let canonical = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    if real.starts_with(canonical(data)) {
        return true;
    }
    let Some(inside) = state.and_then(|state| real.strip_prefix(canonical(state)).ok()) else {
        return false;
    };
    let first = inside.iter().next().unwrap_or_default().to_string_lossy();
    !first.ends_with("-worktrees")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_to_the_hubs_files_is_not_read() {
        let place = tempfile::tempdir().unwrap();
        let path = |name: &str| place.path().join(name);
        std::fs::create_dir(path("data")).unwrap();
        std::fs::write(path("data/operator.token"), "secret").unwrap();
        std::fs::write(path("real.md"), "the spec").unwrap();
        for (link, to) in [("direct.md", "data/operator.token"), ("fine.md", "real.md")] {
            std::os::unix::fs::symlink(path(to), path(link)).unwrap();
        }
        std::os::unix::fs::symlink(path("data"), path("docs")).unwrap();
        let data = path("data");
        assert_eq!(read(&path("real.md"), &data).unwrap(), "the spec");
        assert_eq!(read(&path("fine.md"), &data).unwrap(), "the spec");
        for name in ["direct.md", "docs/operator.token", "data/operator.token"] {
            let refused = read(&path(name), &data).unwrap_err().to_string();
            assert!(refused.contains("belongs to the hub"), "{name}: {refused}");
        }
        if cfg!(target_os = "linux") {
            std::os::unix::fs::symlink("/proc/self/environ", path("environ.md")).unwrap();
            let refused = read(&path("environ.md"), &data).unwrap_err().to_string();
            assert!(refused.contains("is no text"), "{refused}");
        }
        // Other workspaces are beside this one.
        let is_hubs = |file| is_hubs(Path::new(file), Path::new("/s/one"), Some(Path::new("/s")));
        assert!(is_hubs("/s/one/log.db") && is_hubs("/s/two/operator.token"));
        assert!(!is_hubs("/s/one-worktrees/run/SPEC.md") && !is_hubs("/home/SPEC.md"));
    }
}
