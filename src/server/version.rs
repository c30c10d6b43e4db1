//! What this server calls itself.

/// The version of Disque it stands in for. Clients and scripts read this one.
pub const DISQUE_VERSION: &str = "1.0-rc1";
/// The name of this implementation.
pub const SERVER_NAME: &str = "disque";
/// The version of this implementation.
pub const SERVER_VERSION: &str = env!("CARGO_PKG_VERSION");
/// First 8 hex digits of the commit, when the build was given it in DISQUE_GIT_SHA1.
pub const GIT_SHA1: &str = match option_env!("DISQUE_GIT_SHA1") {
    Some(sha) if !sha.is_empty() => sha,
    _ => "00000000",
};
/// `1` when DISQUE_GIT_DIRTY said at the build that there were changes since that commit.
pub const GIT_DIRTY: &str = match option_env!("DISQUE_GIT_DIRTY") {
    Some(dirty) if !dirty.is_empty() => dirty,
    _ => "0",
};
/// The allocator, with the version of jemalloc that tikv-jemallocator 0.7 brings.
pub const ALLOCATOR: &str = if cfg!(feature = "jemalloc") { "jemalloc-5.3.1" } else { "libc" };
/// 32 or 64.
pub const ARCH_BITS: u32 = usize::BITS;

/// The line of `--version`, in the shape of the C server's: scripts take it apart.
///
/// Differs from C: the build ID is the commit, because a build must be reproducible and
/// C's holds the time and the machine.
pub fn line() -> String {
    format!(
        "Disque server v={DISQUE_VERSION} sha={GIT_SHA1}:{GIT_DIRTY} malloc={ALLOCATOR} \
         bits={ARCH_BITS} build={GIT_SHA1}"
    )
}
