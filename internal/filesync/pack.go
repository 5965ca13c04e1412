package filesync

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// small files are read as a whole before they are sent, so that one that changes meanwhile can be read again.
	smallFile = 1 << 20
	// Files above bigFile, and sparse ones, go in parts: what arrived of one is not sent again, and holes are not sent at all.
	bigFile  = 16 << 20
	partSize = 8 << 20
	// holeBlock is to what parts are aligned; dd on the far side seeks in these.
	holeBlock = 4096
	readTries = 3
)

// put is a file, link or directory that is to go to name below the far root.
type put struct {
	name   string
	from   nearItem
	expect string // the token that may be replaced; "*" anything but a directory, "**" anything
}

// removal takes away what has this token.
type removal struct{ name, expect string }

// packer writes a shipment as a tar stream and keeps what it wrote for the plan.
type packer struct {
	tar    *tar.Writer
	stage  map[string]string // what is in the stage already: name there, token
	plan   []record
	spoilt []string // what was sent for nothing and must not reach its place
	names  []string // what each line of the finished plan is about
	tokens map[string]string
	stats  map[string]nearStat
	skip   func(name, why string)
	moved  func(bytes int64)
	buffer []byte
}

// record is one step of the plan: a line of these fields, and for a file in parts a line for each of them.
type record struct {
	kind, name, expect, token, how string
	parts                          []string
}

func (p *packer) record(kind, name, expect, token, how string, parts ...string) {
	p.plan = append(p.plan, record{kind, name, expect, token, how, parts})
}

// script writes the plan as far.sh reads it, and what each of its lines is about. The first line has the numbers of those that
// need a look before anything is done.
func (p *packer) script() (text []byte, names []string) {
	var body bytes.Buffer
	var look []string
	names = []string{""}
	trees := p.trees()
	for i, r := range p.plan {
		if r.kind == "parts" || strings.HasPrefix(r.expect, "f") && len(r.expect) == fileTokenLen {
			look = append(look, strconv.Itoa(len(names)))
		}
		if r.kind == "tree" {
			if lines, whole := trees[i]; whole {
				r.how += " " + strconv.Itoa(lines)
			} else {
				r.kind = "dir"
			}
		}
		for j, field := range []string{r.kind, r.name, r.expect, r.token, r.how} {
			if j > 0 {
				body.WriteByte(fieldSep)
			}
			body.WriteString(escape(field))
		}
		body.WriteByte('\n')
		names = append(names, r.name)
		for _, part := range r.parts {
			body.WriteString(part + "\n")
			names = append(names, "")
		}
	}
	return append([]byte(strings.Join(look, " ")+"\n"), body.Bytes()...), names
}

// trees says how many lines are about what is in each tree of the plan, by its number there. A tree with something that was
// sent for nothing is not among them: it cannot be moved as a whole.
func (p *packer) trees() map[int]int {
	trees := map[int]int{}
	var open []int
	for i, r := range p.plan {
		for len(open) > 0 && !strings.HasPrefix(r.name, p.plan[open[len(open)-1]].name+"/") {
			open = open[:len(open)-1]
		}
		if r.kind != "tree" && r.kind != "dir" && r.kind != "put" && r.kind != "parts" {
			break // nothing comes in behind
		}
		for _, tree := range open {
			trees[tree] += 1 + len(r.parts)
		}
		if r.kind == "tree" {
			trees[i] = 0
			open = append(open, i)
		}
	}
	for i := range trees {
		if slices.ContainsFunc(p.spoilt, func(name string) bool { return strings.HasPrefix(name, p.plan[i].name+"/") }) {
			delete(trees, i)
		}
	}
	return trees
}

// paths lists what is to be in its place, for the far side's stat.
func (p *packer) paths() []byte {
	var list bytes.Buffer
	for _, r := range p.plan {
		if r.kind == "put" || r.kind == "parts" {
			list.WriteString("./" + r.name + "\x00")
		}
	}
	return list.Bytes()
}

// header is one for a member of the stage. The GNU format takes names as bytes, of any length, and every tar reads it.
func header(name string, kind byte, mode int64, size int64, mtime time.Time) *tar.Header {
	if mtime.Unix() < 1 { // some tars complain about 1970
		mtime = time.Unix(1, 0)
	}
	return &tar.Header{Name: name, Typeflag: kind, Mode: mode, Size: size, ModTime: mtime.Truncate(time.Second), Format: tar.FormatGNU}
}

// add sends one put; read is its content where it was read ahead. An error is the stream's; a file that cannot be read is
// skipped.
func (p *packer) add(it put, read *content) error {
	switch it.from.Type {
	case 'd':
		return p.addDirectory(it)
	case 'l':
		return p.addLink(it)
	case 'f':
	default:
		p.skip(it.name, "it is neither a file nor a directory nor a link")
		return nil
	}
	if read != nil && (read.err != nil || read.data != nil) {
		return p.addRead(it, read)
	}
	if token, ok := p.stage["new/"+it.name]; ok {
		if have, st, err := it.from.token(); err == nil && have == token {
			p.moved(st.Size)
			p.sent(it, "put", token, st, "")
			return nil
		}
	}
	f, info, err := openNear(it.from.path)
	if err != nil {
		p.skip(it.name, unwrapPath(err).Error())
		return nil
	}
	defer f.Close()
	it.from.MTime, it.from.Mode = info.ModTime(), info.Mode().Perm()
	switch {
	case info.Size() > bigFile || isSparse(info):
		return p.addParts(it, f, info)
	case info.Size() > smallFile:
		return p.addStream(it, f, info)
	}
	c := content{info: info}
	if c.data, c.stat, c.err = readSteady(f, p.buffer); c.err == nil && c.data == nil {
		c.err = errChanging
	}
	if c.err == nil {
		sum := sha256.Sum256(c.data)
		c.token = fileToken(sum[:])
	}
	return p.addRead(it, &c)
}

// addRead sends a file that was read whole.
func (p *packer) addRead(it put, c *content) error {
	if c.err != nil {
		p.skip(it.name, unwrapPath(c.err).Error())
		return nil
	}
	it.from.MTime, it.from.Mode = time.Unix(0, c.stat.MTime), c.info.Mode().Perm()
	if err := p.tar.WriteHeader(header("new/"+it.name, tar.TypeReg, int64(it.from.Mode), int64(len(c.data)), it.from.MTime)); err != nil {
		return err
	}
	if _, err := p.tar.Write(c.data); err != nil {
		return err
	}
	p.moved(int64(len(c.data)))
	p.sent(it, "put", c.token, c.stat, "")
	return nil
}

func (p *packer) sent(it put, kind, token string, st nearStat, how string, parts ...string) {
	p.tokens[it.name], p.stats[it.name] = token, st
	p.record(kind, it.name, it.expect, token, how, parts...)
}

func (p *packer) addDirectory(it put) error {
	mode := int64(it.from.Mode.Perm())
	if err := p.tar.WriteHeader(header("new/"+it.name+"/", tar.TypeDir, mode|0o700, 0, it.from.MTime)); err != nil {
		return err
	}
	kind := "tree"
	if p.stage != nil { // it may hold what is not wanted any more
		kind = "dir"
	}
	p.tokens[it.name] = directory
	p.record(kind, it.name, it.expect, directory, strconv.FormatInt(mode|0o700, 8))
	return nil
}

func (p *packer) addLink(it put) error {
	token, st, err := it.from.token()
	if err != nil {
		p.skip(it.name, unwrapPath(err).Error())
		return nil
	}
	h := header("new/"+it.name, tar.TypeSymlink, 0o777, 0, it.from.MTime)
	h.Linkname = token[1:]
	if err := p.tar.WriteHeader(h); err != nil {
		return err
	}
	p.sent(it, "put", token, st, "")
	return nil
}

// addStream sends a file as it is read. One that changed meanwhile has been sent for nothing: the plan leaves it out.
func (p *packer) addStream(it put, f *os.File, info os.FileInfo) error {
	size := info.Size()
	if err := p.tar.WriteHeader(header("new/"+it.name, tar.TypeReg, int64(it.from.Mode), size, info.ModTime())); err != nil {
		return err
	}
	st := statOf(info)
	checked := time.Now().UnixNano()
	h := sha256.New()
	rerr, werr := p.copy(io.MultiWriter(p.tar, h), f, 0, size)
	if werr != nil {
		return werr
	}
	p.finish(it, f, st, checked, rerr, "put", h, "")
	return nil
}

// finish records a file that was sent unless it changed meanwhile.
func (p *packer) finish(it put, f *os.File, st nearStat, checked int64, rerr error, kind string, h hash.Hash, how string, parts ...string) {
	after, err := f.Stat()
	if rerr != nil || err != nil || statOf(after) != st {
		p.spoilt = append(p.spoilt, it.name)
	}
	switch {
	case rerr != nil:
		p.skip(it.name, unwrapPath(rerr).Error())
	case err != nil || statOf(after) != st:
		p.skip(it.name, errChanging.Error())
	default:
		st.Checked = checked
		p.sent(it, kind, fileToken(h.Sum(nil)), st, how, parts...)
	}
}

// copy moves exactly size bytes; what cannot be read is zeros, so that the stream goes on.
func (p *packer) copy(w io.Writer, f *os.File, offset, size int64) (rerr, werr error) {
	for end := offset + size; offset < end; {
		data := p.buffer[:min(int64(len(p.buffer)), end-offset)]
		if rerr == nil {
			n, err := f.ReadAt(data, offset)
			if n < len(data) {
				if errors.Is(err, io.EOF) {
					err = errChanging
				}
				rerr = err
			}
		}
		if rerr != nil {
			clear(data)
		}
		if _, err := w.Write(data); err != nil {
			return rerr, err
		}
		p.moved(int64(len(data)))
		offset += int64(len(data))
	}
	return rerr, nil
}

// addParts sends a file in parts, without its holes.
func (p *packer) addParts(it put, f *os.File, info os.FileInfo) error {
	size, st, checked := info.Size(), statOf(info), time.Now().UnixNano()
	id := sha256.Sum256([]byte(it.name))
	whole := sha256.New()
	var parts []string
	var at int64 // up to here it is hashed
	var failed error
	for offset := int64(0); offset < size && failed == nil; {
		from, to := offset, size
		if isSparse(info) {
			from, to = nextData(f, offset, size)
		}
		from -= from % holeBlock
		if from >= size {
			break
		}
		to = min(from+partSize, (to+holeBlock-1)/holeBlock*holeBlock, size)
		part := fmt.Sprintf("%s.%d", hex.EncodeToString(id[:8]), from)
		if err := zeros(whole, from-at); err != nil {
			return err
		}
		rerr, err := p.addPart(whole, "part/"+part, f, from, to-from)
		if err != nil {
			return err
		}
		failed = rerr
		parts = append(parts, fmt.Sprintf("%d %s", from, part))
		at, offset = to, to
	}
	if err := zeros(whole, size-at); err != nil {
		return err
	}
	stamp := info.ModTime().UTC().Format("200601021504.05")
	p.finish(it, f, st, checked, failed, "parts", whole, fmt.Sprintf("%d %o %s %d", size, it.from.Mode.Perm(), stamp, len(parts)), parts...)
	return nil
}

// addPart sends one part, unless the stage has it.
func (p *packer) addPart(whole hash.Hash, name string, f *os.File, offset, size int64) (rerr, werr error) {
	if token, ok := p.stage[name]; ok {
		h := sha256.New()
		if rerr, _ = p.copy(h, f, offset, size); rerr == nil && fileToken(h.Sum(nil)) == token {
			p.moved(-size)
			return p.copy(whole, f, offset, size)
		}
		p.moved(-size)
	}
	if err := p.tar.WriteHeader(header(name, tar.TypeReg, 0o600, size, time.Now())); err != nil {
		return nil, err
	}
	return p.copy(io.MultiWriter(p.tar, whole), f, offset, size)
}

func zeros(w io.Writer, n int64) error {
	block := make([]byte, 64<<10)
	for n > 0 {
		k := min(n, int64(len(block)))
		if _, err := w.Write(block[:k]); err != nil {
			return err
		}
		n -= k
	}
	return nil
}

// close ends the plan, sends book and plan, and ends the archive.
func (p *packer) close(puts []put, removes []removal, book []byte) error {
	for _, r := range removes {
		p.record("remove", r.name, r.expect, absent, "")
	}
	for i := len(puts) - 1; i >= 0; i-- { // a directory that cannot be written to is closed when all is in it
		if it := puts[i]; it.from.Type == 'd' && it.from.Mode&0o700 != 0o700 {
			p.record("chmod", it.name, "", "", strconv.FormatInt(int64(it.from.Mode.Perm()), 8))
		}
	}
	p.record("end", "", "", "", "")
	var plan []byte
	plan, p.names = p.script()
	for _, m := range []struct {
		name string
		data []byte
	}{{"book", book}, {"paths", p.paths()}, {"plan", plan}} {
		if err := p.tar.WriteHeader(header(m.name, tar.TypeReg, 0o600, int64(len(m.data)), time.Now())); err != nil {
			return err
		}
		if _, err := p.tar.Write(m.data); err != nil {
			return err
		}
	}
	return p.tar.Close()
}
