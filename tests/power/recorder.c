/*
 * A library to be preloaded into the server. It records, in the order in which they are
 * done, what the server does to the files of one folder and what it sends to sockets.
 *
 * Environment:
 *   RECORDER_TRACE   the file that the trace is appended to
 *   RECORDER_ROOT    the folder, without links
 *   RECORDER_BUSY    names of files in it, between colons, that cannot be renamed over, as if
 *                    they were mounts of their own: ":nodes.conf:"
 *
 * An event is a header and two byte strings; tests/power/trace.rs reads them. One lock is
 * held over what is done and what is recorded of it, so the trace has the order of the
 * deeds of all threads. What fails is not recorded.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum kind { OPEN = 1, WRITE, CUT, SYNC, SYNC_FOLDER, RENAME, REMOVE, SEND };

struct header {
    uint32_t kind;
    uint32_t name_len;  /* of the file, or of the old name */
    uint32_t bytes_len; /* what is written or sent, or the new name */
    uint32_t unused;
    uint64_t inode;
    uint64_t place; /* where it is written, or the length it is cut to */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int trace = -1;
static char root[PATH_MAX];
static size_t root_len;
static const char *busy;

__attribute__((constructor)) static void start(void)
{
    const char *path = getenv("RECORDER_TRACE"), *folder = getenv("RECORDER_ROOT");
    busy = getenv("RECORDER_BUSY");
    if (path == NULL || folder == NULL)
        return;
    root_len = (size_t)snprintf(root, sizeof(root), "%s/", folder);
    trace = (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    unsetenv("LD_PRELOAD");
}

static void record(enum kind kind, uint64_t inode, uint64_t place, const char *name,
                   const void *bytes, size_t bytes_len)
{
    struct header header = {kind, (uint32_t)strlen(name), (uint32_t)bytes_len, 0, inode, place};
    struct iovec parts[] = {
        {&header, sizeof(header)},
        {(void *)name, header.name_len},
        {(void *)bytes, bytes_len},
    };
    if (syscall(SYS_writev, trace, parts, 3) < 0)
        abort();
}

/* The path below the folder of an open file or folder that lies there; NULL for others. The
 * folder itself is "". The log is of no interest. */
static const char *below_root(int fd, char *path, struct stat *st)
{
    char link[64];
    ssize_t len;
    if (trace < 0 || fstat(fd, st) != 0 || !(S_ISREG(st->st_mode) || S_ISDIR(st->st_mode)))
        return NULL;
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    len = readlink(link, path, PATH_MAX - 2);
    if (len < 0)
        return NULL;
    path[len] = '\0';
    if (S_ISDIR(st->st_mode))
        strcpy(path + len, "/");
    if (strncmp(path, root, root_len) != 0 || strcmp(path + root_len, "log") == 0)
        return NULL;
    return path + root_len;
}

static int is_socket(int fd)
{
    struct stat st;
    return trace >= 0 && fstat(fd, &st) == 0 && S_ISSOCK(st.st_mode);
}

static uint64_t socket_inode(int fd)
{
    struct stat st;
    return fstat(fd, &st) == 0 ? st.st_ino : 0;
}

/* Calls what this library hides. */
#define REAL(result, name, ...) \
    static result (*real)(__VA_ARGS__); \
    if (real == NULL) \
        real = (result(*)(__VA_ARGS__))dlsym(RTLD_NEXT, name)

static int note_open(int fd, int flags)
{
    char path[PATH_MAX];
    struct stat st;
    int error = errno;
    const char *name = fd < 0 || (flags & O_ACCMODE) == O_RDONLY ? NULL : below_root(fd, path, &st);
    if (name != NULL) {
        record(OPEN, st.st_ino, 0, name, NULL, 0);
        if (flags & O_TRUNC)
            record(CUT, st.st_ino, 0, name, NULL, 0);
    }
    errno = error;
    return fd;
}

#define OPEN_LIKE(function) \
    int function(const char *path, int flags, ...) \
    { \
        REAL(int, #function, const char *, int, ...); \
        mode_t mode = 0; \
        int fd; \
        if (flags & (O_CREAT | O_TMPFILE)) { \
            va_list rest; \
            va_start(rest, flags); \
            mode = va_arg(rest, mode_t); \
            va_end(rest); \
        } \
        pthread_mutex_lock(&lock); \
        fd = note_open(real(path, flags, mode), flags); \
        pthread_mutex_unlock(&lock); \
        return fd; \
    }

OPEN_LIKE(open)
OPEN_LIKE(open64)

static void note_write(int fd, uint64_t place, const void *bytes, ssize_t len)
{
    char path[PATH_MAX];
    struct stat st;
    int error = errno;
    const char *name = len > 0 ? below_root(fd, path, &st) : NULL;
    if (name != NULL)
        record(WRITE, st.st_ino, place, name, bytes, (size_t)len);
    else if (len > 0 && is_socket(fd))
        record(SEND, socket_inode(fd), 0, "", bytes, (size_t)len);
    errno = error;
}

/* Where the next write goes. */
static uint64_t write_place(int fd)
{
    struct stat st;
    int flags = fcntl(fd, F_GETFL);
    if (flags >= 0 && flags & O_APPEND && fstat(fd, &st) == 0)
        return (uint64_t)st.st_size;
    return (uint64_t)lseek(fd, 0, SEEK_CUR);
}

ssize_t write(int fd, const void *bytes, size_t len)
{
    REAL(ssize_t, "write", int, const void *, size_t);
    uint64_t place;
    ssize_t written;
    pthread_mutex_lock(&lock);
    place = write_place(fd);
    written = real(fd, bytes, len);
    note_write(fd, place, bytes, written);
    pthread_mutex_unlock(&lock);
    return written;
}

static ssize_t pwrite_like(ssize_t (*real)(int, const void *, size_t, off_t), int fd,
                           const void *bytes, size_t len, off_t place)
{
    ssize_t written;
    pthread_mutex_lock(&lock);
    written = real(fd, bytes, len, place);
    note_write(fd, (uint64_t)place, bytes, written);
    pthread_mutex_unlock(&lock);
    return written;
}

ssize_t pwrite(int fd, const void *bytes, size_t len, off_t place)
{
    REAL(ssize_t, "pwrite", int, const void *, size_t, off_t);
    return pwrite_like(real, fd, bytes, len, place);
}

ssize_t pwrite64(int fd, const void *bytes, size_t len, off_t place)
{
    REAL(ssize_t, "pwrite64", int, const void *, size_t, off_t);
    return pwrite_like(real, fd, bytes, len, place);
}

ssize_t writev(int fd, const struct iovec *parts, int count)
{
    REAL(ssize_t, "writev", int, const struct iovec *, int);
    uint64_t place;
    ssize_t written, left;
    int i;
    pthread_mutex_lock(&lock);
    place = write_place(fd);
    written = left = real(fd, parts, count);
    for (i = 0; i < count && left > 0; i++) {
        ssize_t len = (ssize_t)parts[i].iov_len < left ? (ssize_t)parts[i].iov_len : left;
        note_write(fd, place, parts[i].iov_base, len);
        place += (uint64_t)len;
        left -= len;
    }
    pthread_mutex_unlock(&lock);
    return written;
}

ssize_t send(int fd, const void *bytes, size_t len, int flags)
{
    REAL(ssize_t, "send", int, const void *, size_t, int);
    ssize_t sent;
    pthread_mutex_lock(&lock);
    sent = real(fd, bytes, len, flags);
    note_write(fd, 0, bytes, sent);
    pthread_mutex_unlock(&lock);
    return sent;
}

static int cut_like(int (*real)(int, off_t), int fd, off_t len)
{
    char path[PATH_MAX];
    struct stat st;
    int answer;
    pthread_mutex_lock(&lock);
    answer = real(fd, len);
    if (answer == 0) {
        const char *name = below_root(fd, path, &st);
        if (name != NULL)
            record(CUT, st.st_ino, (uint64_t)len, name, NULL, 0);
    }
    pthread_mutex_unlock(&lock);
    return answer;
}

int ftruncate(int fd, off_t len)
{
    REAL(int, "ftruncate", int, off_t);
    return cut_like(real, fd, len);
}

int ftruncate64(int fd, off_t len)
{
    REAL(int, "ftruncate64", int, off_t);
    return cut_like(real, fd, len);
}

static int sync_like(int (*real)(int), int fd)
{
    char path[PATH_MAX];
    struct stat st;
    int answer;
    pthread_mutex_lock(&lock);
    answer = real(fd);
    if (answer == 0) {
        const char *name = below_root(fd, path, &st);
        if (name != NULL)
            record(S_ISDIR(st.st_mode) ? SYNC_FOLDER : SYNC, st.st_ino, 0, name, NULL, 0);
    }
    pthread_mutex_unlock(&lock);
    return answer;
}

int fsync(int fd)
{
    REAL(int, "fsync", int);
    return sync_like(real, fd);
}

int fdatasync(int fd)
{
    REAL(int, "fdatasync", int);
    return sync_like(real, fd);
}

/* The part of a path below the folder, if its folder is that one. */
static const char *name_below_root(const char *path, char *resolved)
{
    char folder[PATH_MAX];
    const char *slash = strrchr(path, '/');
    if (trace < 0)
        return NULL;
    snprintf(folder, sizeof(folder), "%.*s", slash == NULL ? 1 : (int)(slash - path + 1),
             slash == NULL ? "." : path);
    if (realpath(folder, resolved) == NULL)
        return NULL;
    strcat(resolved, "/");
    strcat(resolved, slash == NULL ? path : slash + 1);
    return strncmp(resolved, root, root_len) == 0 ? resolved + root_len : NULL;
}

static int is_busy(const char *name)
{
    char between_colons[PATH_MAX];
    if (busy == NULL || name == NULL)
        return 0;
    snprintf(between_colons, sizeof(between_colons), ":%s:", name);
    return strstr(busy, between_colons) != NULL;
}

int rename(const char *from, const char *to)
{
    REAL(int, "rename", const char *, const char *);
    char from_path[2 * PATH_MAX], to_path[2 * PATH_MAX];
    const char *from_name, *to_name;
    int answer;
    pthread_mutex_lock(&lock);
    from_name = name_below_root(from, from_path);
    to_name = name_below_root(to, to_path);
    if (is_busy(to_name)) {
        errno = EBUSY;
        answer = -1;
    } else {
        answer = real(from, to);
        if (answer == 0 && from_name != NULL && to_name != NULL)
            record(RENAME, 0, 0, from_name, to_name, strlen(to_name));
    }
    pthread_mutex_unlock(&lock);
    return answer;
}

int unlink(const char *path)
{
    REAL(int, "unlink", const char *);
    char resolved[2 * PATH_MAX];
    const char *name;
    int answer;
    pthread_mutex_lock(&lock);
    name = name_below_root(path, resolved);
    answer = real(path);
    if (answer == 0 && name != NULL)
        record(REMOVE, 0, 0, name, NULL, 0);
    pthread_mutex_unlock(&lock);
    return answer;
}
