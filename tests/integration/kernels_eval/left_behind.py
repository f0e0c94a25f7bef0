"""Host code that looks for what an earlier one left, leaves what it can itself, and tells both: `found`, `left`."""

CANDIDATE = r"""
import ctypes, glob, os, socket, tempfile

libc = ctypes.CDLL(None, use_errno=True)
libc.shmat.restype = ctypes.c_void_p
libc.mq_open.restype = ctypes.c_int
KEY, MARK, CREATE = 0x6B6D, b"left behind", 0o1000 | 0o666
FOLDERS = [tempfile.gettempdir(), "/tmp", "/var/tmp", "/dev/shm", "/run", ".", "/usr/lib", "/root", "/dev/mqueue",
           *filter(None, (os.environ.get(name) for name in ("HOME", "TMPDIR", "TRITON_CACHE_DIR", "XDG_CACHE_HOME")))]
found, left = [], []


def shared_memory(flags):
    number = libc.shmget(KEY, 4096, flags)
    if number < 0:
        return False
    address = libc.shmat(number, None, 0)
    if flags:
        ctypes.memmove(address, MARK, len(MARK))
    return flags or ctypes.string_at(address, len(MARK)) == MARK


def message_queue(flags):
    return libc.msgget(KEY, flags) >= 0


def semaphores(flags):
    return libc.semget(KEY, 1, flags) >= 0


def posix_queue(flags):
    return libc.mq_open(b"/left-behind", os.O_RDWR | (os.O_CREAT if flags else 0), 0o666, None) >= 0


def key_ring(flags):
    if flags:
        return libc.syscall(248, b"user", b"left behind", MARK, len(MARK), -5) > 0
    return libc.syscall(249, b"user", b"left behind", None, 0) > 0


def files(flags):
    got = False
    for folder in FOLDERS:
        path = os.path.join(folder, "left-behind")
        try:
            if flags:
                with open(path, "wb") as file:
                    file.write(MARK)
            got |= os.path.exists(path)
        except OSError:
            pass
    return got


def marks_on_files(flags):
    try:
        if flags:
            os.setxattr(os.__file__, "user.left", MARK)
        return bool(os.getxattr(os.__file__, "user.left"))
    except OSError:
        return False


def memory_files(flags):
    if flags:
        try:
            os.write(os.memfd_create("left-behind"), MARK)
            return True
        except OSError:
            return False
    links = [os.readlink(link) for link in glob.glob("/proc/[0-9]*/fd/*") if os.path.lexists(link)]
    return any("left-behind" in link for link in links)


def abstract_socket(flags):
    try:
        made = socket.socket(socket.AF_UNIX)
        made.bind("\0left-behind") if flags else made.connect("\0left-behind")
        return True
    except OSError:
        return False


def name_of_the_machine(flags):
    if flags:
        return libc.setdomainname(b"left", 4) == 0
    return os.uname()[1].startswith("left")


WAYS = [shared_memory, message_queue, semaphores, posix_queue, key_ring, files, marks_on_files, memory_files,
        abstract_socket, name_of_the_machine]
for way in WAYS:
    for flags, names in ((0, found), (CREATE, left)):
        try:
            if way(flags):
                names.append(way.__name__)
        except OSError:
            pass
raise RuntimeError(f"found {found}, left {left}")
"""
