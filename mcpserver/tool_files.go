package mcpserver

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/elsewhere-sh/elsewhere"
	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/output"
	"github.com/elsewhere-sh/elsewhere/internal/resultjson"
)

// readInput is what the tool read_file takes.
type readInput struct {
	Path    string `json:"path" jsonschema:"The file. Relative to the session's directory; ~ is the sandbox's home."`
	Offset  int    `json:"offset,omitempty" jsonschema:"The first line to read, counted from 1."`
	Limit   int    `json:"limit,omitempty" jsonschema:"At most this many lines."`
	Session string `json:"session,omitempty" jsonschema:"The session to whose directory a relative path belongs. Default: your main session."`
	Backend string `json:"backend,omitempty" jsonschema:"Where the file is."`
}

// readOutput is what it answers, beside the text.
type readOutput struct {
	Path       string            `json:"path"`
	Content    string            `json:"content"`
	FirstLine  int               `json:"first_line" jsonschema:"number of the first line of content"`
	Lines      int               `json:"lines" jsonschema:"lines in content"`
	TotalLines int               `json:"total_lines"`
	Size       int64             `json:"size" jsonschema:"bytes of the whole file"`
	Truncated  bool              `json:"truncated" jsonschema:"the file has more than content"`
	Notices    []string          `json:"notices,omitempty"`
	Error      *resultjson.Error `json:"error,omitempty"`
}

// writeInput is what the tool write_file takes.
type writeInput struct {
	Path    string `json:"path" jsonschema:"The file. Relative to the session's directory; ~ is the sandbox's home. Directories that are missing are made."`
	Content string `json:"content" jsonschema:"All of its new content."`
	Mode    string `json:"mode,omitempty" jsonschema:"Its permissions, such as 0755. Default: what it has, 0644 for a new file."`
	Session string `json:"session,omitempty" jsonschema:"The session to whose directory a relative path belongs. Default: your main session."`
	Backend string `json:"backend,omitempty" jsonschema:"Where the file is."`
}

// writeOutput is what it answers, beside the text.
type writeOutput struct {
	Path    string            `json:"path"`
	Bytes   int               `json:"bytes"`
	Created bool              `json:"created" jsonschema:"there was no such file"`
	Mode    string            `json:"mode,omitempty"`
	Notices []string          `json:"notices,omitempty"`
	Error   *resultjson.Error `json:"error,omitempty"`
}

func (s *Server) addFiles() {
	mcp.AddTool(s.mcp, &mcp.Tool{
		Name: "read_file", Title: "Read a file", InputSchema: s.schema(inputSchema[readInput]()),
		Description: fmt.Sprintf("Read a text file where terminal runs its commands (%s), not on your own machine: at most %d lines at once; go on with offset. Lines longer than %d characters are cut.",
			s.whereText(), s.limits.lines, s.limits.lineLength),
		Annotations: &mcp.ToolAnnotations{Title: "Read a file", ReadOnlyHint: true, IdempotentHint: true, OpenWorldHint: new(false)},
	}, handler(s, s.readFile))
	mcp.AddTool(s.mcp, &mcp.Tool{
		Name: "write_file", Title: "Write a file", InputSchema: s.schema(inputSchema[writeInput]()),
		Description: "Write a whole file where terminal runs its commands (" + s.whereText() + "), byte for byte and without a shell's quoting: makes it, or replaces its content. A reader sees the old content or the new, never a part.",
		Annotations: &mcp.ToolAnnotations{Title: "Write a file", DestructiveHint: new(true), IdempotentHint: true, OpenWorldHint: new(false)},
	}, handler(s, s.writeFile))
}

// readFile reads a part of a file.
func (s *Server) readFile(ctx context.Context, c *call, in readInput) answer[readOutput] {
	out := readOutput{Path: in.Path}
	if in.Path == "" || in.Offset < 0 || in.Limit < 0 {
		return out.failed(failure(driver.KindConfig, "name a file, and count lines from 1", "there is no path, or offset or limit is negative"))
	}
	_, session, err := s.fileSession(ctx, c, in.Backend, in.Session)
	if err != nil {
		return out.failed(err)
	}
	data, err := session.ReadFile(ctx, in.Path)
	if err != nil {
		return out.failed(err)
	}
	out.Size = int64(len(data))
	if bytes.IndexByte(data[:min(len(data), 8<<10)], 0) >= 0 {
		return out.failed(failure(driver.KindUnsupported, "look at it with terminal: file, xxd, strings", "%s is no text: it has %d bytes", in.Path, len(data)))
	}
	limit := s.limits.lines
	if in.Limit > 0 {
		limit = min(limit, in.Limit)
	}
	out.take(data, max(in.Offset, 1), limit, s.limits.lineLength, s.limits.output)
	facts := fmt.Sprintf("lines %d to %d of %d, %d bytes", out.FirstLine, out.FirstLine+out.Lines-1, out.TotalLines, out.Size)
	if out.Lines == 0 {
		facts = fmt.Sprintf("no lines: the file has %d", out.TotalLines)
	}
	if !out.Truncated && out.FirstLine == 1 && len(out.Notices) == 0 && out.Lines > 0 {
		return answer[readOutput]{text: out.Content, out: out}
	}
	return answer[readOutput]{text: withNotices(out.Content, facts, out.Notices), out: out}
}

// take takes the lines from first on, at most most of them and as many as fit into size characters.
func (o *readOutput) take(data []byte, first, most, lineLength, size int) {
	o.FirstLine = first
	var b strings.Builder
	cut, chars := 0, 0
	for line := range bytes.Lines(data) {
		o.TotalLines++
		if o.TotalLines < first || o.Lines >= most || chars >= size {
			continue
		}
		text := strings.TrimSuffix(output.Text(line), "\n")
		end := ""
		if len(text) < len(line) && bytes.HasSuffix(line, []byte("\n")) {
			end = "\n"
		}
		if runes := utf8.RuneCountInString(text); runes > lineLength {
			cut++
			text = firstRunes(text, lineLength) + fmt.Sprintf("... [%d characters more]", runes-lineLength)
		}
		chars += utf8.RuneCountInString(text) + 1
		if chars > size && o.Lines > 0 {
			continue
		}
		b.WriteString(text + end)
		o.Lines++
	}
	o.Content = b.String()
	o.Truncated = cut > 0 || first > 1 || o.Lines < o.TotalLines
	if next := first + o.Lines; next <= o.TotalLines && o.Lines > 0 {
		o.Notices = append(o.Notices, fmt.Sprintf("there are more lines; go on with offset %d", next))
	}
	if cut > 0 {
		o.Notices = append(o.Notices, fmt.Sprintf("%d lines are longer than %d characters and are cut", cut, lineLength))
	}
	if !utf8.Valid(data) {
		o.Notices = append(o.Notices, "some bytes are no UTF-8 and are shown as \uFFFD: writing this text back would change them")
	}
}

// writeFile makes or replaces a file.
func (s *Server) writeFile(ctx context.Context, c *call, in writeInput) answer[writeOutput] {
	out := writeOutput{Path: in.Path}
	if in.Path == "" {
		return out.failed(failure(driver.KindConfig, "name a file", "there is no path"))
	}
	mode := fs.FileMode(0)
	if in.Mode != "" {
		n, err := strconv.ParseUint(in.Mode, 8, 32)
		if err != nil || n > 0o777 {
			return out.failed(failure(driver.KindConfig, "give permissions in octal, such as 0755", "%q is no mode", in.Mode))
		}
		mode = fs.FileMode(n)
	}
	p, session, err := s.fileSession(ctx, c, in.Backend, in.Session)
	if err != nil {
		return out.failed(err)
	}
	// The directory is the session's when the state of its last call is written.
	_ = session.Flush(ctx)
	named := absolute(in.Path, session.Cwd(), p.home())
	there, err := c.lookAt(ctx, p, named)
	if err == nil && there.path != named {
		// A link is looked at as well as the file that it leads to.
		err = session.PermitWrite(ctx, named)
	}
	if err != nil {
		return out.failed(err)
	}
	if in.Mode == "" {
		mode = there.mode
	}
	if err := session.WriteFile(ctx, there.path, []byte(in.Content), mode); err != nil {
		return out.failed(err)
	}
	out.Bytes, out.Created, out.Mode = len(in.Content), !there.exists, fmt.Sprintf("%04o", mode)
	verb := "replaced"
	if out.Created {
		verb = "made"
	}
	return answer[writeOutput]{text: fmt.Sprintf("%s was %s, with %d bytes", in.Path, verb, out.Bytes), out: out}
}

// fileSession is the session of a file tool.
func (s *Server) fileSession(ctx context.Context, c *call, backend, name string) (*place, *elsewhere.Session, error) {
	p, err := s.place(backend)
	if err != nil {
		return nil, nil, err
	}
	session, err := c.session(ctx, p, name, c.told)
	return p, session, err
}

// absolute is a path of a sandbox from its root on.
func absolute(name, dir, home string) string {
	switch {
	case name == "~":
		return home
	case strings.HasPrefix(name, "~/"):
		return strings.TrimSuffix(home, "/") + name[1:]
	case strings.HasPrefix(name, "/"):
		return name
	}
	return strings.TrimSuffix(dir, "/") + "/" + name
}

const (
	// newFile is the mode of a file that a client makes without naming one.
	newFile = 0o644
	// lookWait bounds how long it may take to look at a path.
	lookWait = 30 * time.Second
)

// there is what a path names before it is written.
type there struct {
	path   string // without the links at its end
	exists bool
	mode   fs.FileMode
}

// lookScript prints what the path in EW_FILE names: the file behind links, and its mode.
const lookScript = `f=$EW_FILE; n=0
while [[ -L $f && n -lt 40 ]]; do
	l=$(readlink -- "$f") || break
	[[ $l == /* ]] || { d=${f%/*}; [[ $d == "$f" ]] && d=.; l=$d/$l; }
	f=$l; ((n++))
done
if [[ -d $f ]]; then m=dir
elif [[ -e $f ]]; then m=$(stat -c %a -- "$f" 2>/dev/null || stat -f %Lp -- "$f" 2>/dev/null) || { m=644; [[ -x $f ]] && m=755; }
else m=none; fi
printf '%s\n%s' "$m" "$f"`

// lookAt finds out what an absolute path names: a file that is written through a link stays where it is, and a program stays
// one.
func (c *call) lookAt(ctx context.Context, p *place, path string) (there, error) {
	session, err := c.session(ctx, p, looking, c.told)
	if err != nil {
		return there{}, err
	}
	res, err := session.Run(ctx, lookScript, &elsewhere.RunOptions{Env: map[string]string{"EW_FILE": path}, Timeout: lookWait})
	if err != nil {
		return there{}, err
	}
	mode, file, ok := strings.Cut(string(res.Output), "\n")
	switch {
	case res.Cause != elsewhere.Exited || !ok:
		return there{}, failure(driver.KindUnavailable, "try again", "it was not found out what %s is (%s): %s", path, res.Cause, output.Text(res.Output))
	case mode == "dir":
		return there{}, failure(driver.KindConfig, "name a file in it", "%s is a directory", path)
	case mode == "none":
		return there{path: file, mode: newFile}, nil
	}
	n, err := strconv.ParseUint(mode, 8, 32)
	if err != nil {
		n = newFile
	}
	return there{path: file, exists: true, mode: fs.FileMode(n).Perm()}, nil
}

func (o readOutput) failed(err error) answer[readOutput] {
	o.Error = resultjson.NewError(err)
	return answer[readOutput]{text: errorText(o.Error), out: o, failed: true}
}

func (o writeOutput) failed(err error) answer[writeOutput] {
	o.Error = resultjson.NewError(err)
	return answer[writeOutput]{text: errorText(o.Error), out: o, failed: true}
}
