//go:build linux

package modal

// toolPath is the program by which the SDK reads and writes files, and tool does what that one does; it is run by the tree's Python.
const toolPath = "/__modal/.bin/modal-sandbox-fs-tools"

const tool = `
import grp, json, os, pwd, shutil, stat, sys

def fail(kind, text):
    json.dump({"error_kind": kind, "message": text, "detail": ""}, sys.stderr)
    sys.exit(1)

def info(path, name):
    st = os.lstat(path)
    kind = "symlink" if stat.S_ISLNK(st.st_mode) else "directory" if stat.S_ISDIR(st.st_mode) else "file"
    return {"name": name, "path": path, "type": kind, "size": st.st_size, "mode": stat.S_IMODE(st.st_mode),
        "permissions": stat.filemode(st.st_mode), "owner": str(st.st_uid), "group": str(st.st_gid), "modified_time": st.st_mtime,
        "symlink_target": os.readlink(path) if kind == "symlink" else None}

(op, arg), = json.loads(sys.argv[1]).items()
path = arg["path"]
try:
    if op == "ReadFile":
        with open(path, "rb") as f:
            shutil.copyfileobj(f, sys.stdout.buffer)
    elif op == "WriteFile":
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as f:
            shutil.copyfileobj(sys.stdin.buffer, f)
    elif op == "ListFiles":
        json.dump([info(os.path.join(path, n), n) for n in sorted(os.listdir(path))], sys.stdout)
    elif op == "Stat":
        json.dump(info(path, os.path.basename(path)), sys.stdout)
    elif op == "MakeDirectory":
        if arg["parents"]:
            os.makedirs(path, exist_ok=True)
        else:
            os.mkdir(path)
    elif op == "Remove":
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path) if arg["recursive"] else os.rmdir(path)
        else:
            os.remove(path)
    else:
        fail("NotSupported", "the emulator does not know " + op)
except FileNotFoundError:
    fail("NotFound", "no such file or directory")
except IsADirectoryError:
    fail("IsDirectory", "is a directory")
except NotADirectoryError:
    fail("NotDirectory", "is not a directory")
except FileExistsError:
    fail("PathAlreadyExists", "is there already")
except PermissionError:
    fail("PermissionDenied", "permission denied")
except OSError as e:
    fail("DirectoryNotEmpty" if e.errno == 39 else "Other", str(e))
`

func isTool(args []string) bool { return len(args) == 2 && args[0] == toolPath }

// beginTool starts the tool. b.mu is held.
func (b *box) beginTool(args []string) (*running, error) {
	return b.begin([]string{"python3", "-c", tool, args[1]}, nil, "/", nil, false, false)
}
