# Holds a job's terminal: runs sys.argv[1:] on it as the leader of its session, types what comes on standard input, writes what is shown to standard
# output, and ends with the leader's exit code (128+n for signal n) when all that it wrote has been passed on, or a second after it where what it left
# does not stop to write.
import fcntl, os, select, signal, sys, termios, time

near, far = os.openpty()
heard, wake = os.pipe()
os.set_blocking(near, False)
os.set_blocking(wake, False)
signal.signal(signal.SIGCHLD, lambda *_: None)
signal.set_wakeup_fd(wake)
leader = os.fork()
if leader == 0:
    os.setsid()
    fcntl.ioctl(far, termios.TIOCSCTTY, 0)
    for fd in 0, 1, 2:
        os.dup2(far, fd)
    # Python ignores these two.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    os.execv(sys.argv[1], sys.argv[1:])

# The far end stays open here, so that a leader that closes its own does not end the terminal.
code, last, keys, typed = None, 0, True, b""
while True:
    takes = [near, heard] + ([0] if keys and not typed else [])
    ready, room, _ = select.select(takes, [near] if typed else [], [], None if code is None else 0.01)
    shown = b""
    if near in ready:
        try:
            shown = os.read(near, 65536)
        except OSError:
            pass
    if code is not None and (not shown or time.monotonic() > last):
        os._exit(code)
    while shown:
        shown = shown[os.write(1, shown):]
    if 0 in ready:
        typed = os.read(0, 65536)
        keys = bool(typed)
    if room:
        try:
            typed = typed[os.write(near, typed):]
        except BlockingIOError:
            pass
        except OSError:
            typed = b""
    if heard in ready:
        os.read(heard, 64)
        pid, status = os.waitpid(leader, os.WNOHANG)
        if pid:
            code = 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
            last, keys, typed = time.monotonic() + 1, False, b""
