package filesync

import (
	"archive/tar"
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

const (
	// compressFrom is from how many bytes on a stream may be compressed, and nearby below what round trip it is not: what is
	// that near moves bytes faster than it packs them.
	compressFrom = 32 << 10
	nearby       = 2 * time.Millisecond
)

// Skip is one file that a transfer left out, and why.
type Skip struct {
	Path string `json:"path"`
	Why  string `json:"why"`
}

// Progress is how far a transfer is.
type Progress struct {
	Files, AllFiles int
	Bytes, AllBytes int64
}

// shipment is what goes to the far side in one stream.
type shipment struct {
	puts     []put
	removes  []removal
	stage    string // its name below the far root; a second attempt of the same transfer uses the same
	bookFile string // "" for none
	// book gives the far book's text when all tokens are known.
	book     func(tokens map[string]string) []byte
	progress func(Progress)
}

// shipped is what became of it.
type shipped struct {
	tokens  map[string]string // what is in its place there now
	stats   map[string]nearStat
	items   map[string]item // as stat has them there
	removed []string
	skipped []Skip
	booked  bool
	resumed bool
}

// send carries a shipment out. Where it breaks, the tokens of what was on its way come with the error.
func (f *far) send(ctx context.Context, s *shipment) (*shipped, error) {
	slices.SortFunc(s.puts, func(a, b put) int { return sortedAsTree(a.name, b.name) })
	c, err := converse(ctx, f.remote, []string{"tar", "stat", "hash", "xargs"}, "send", f.root, s.stage, s.bookFile)
	if err != nil {
		return nil, err
	}
	defer c.end(ctx)
	done, err := f.sendTo(c, s)
	return done, c.why(ctx, err)
}

func (f *far) sendTo(c *conversation, s *shipment) (*shipped, error) {
	state, err := c.answer("stage")
	if err != nil {
		return nil, err
	}
	p := &packer{tokens: map[string]string{}, stats: map[string]nearStat{}, buffer: make([]byte, smallFile)}
	done := &shipped{tokens: p.tokens, stats: p.stats, items: map[string]item{}, booked: s.bookFile != ""}
	p.skip = func(name, why string) { done.skipped = append(done.skipped, Skip{name, why}) }
	var at Progress
	for _, it := range s.puts {
		at.AllFiles++
		at.AllBytes += it.from.Size
	}
	p.moved = func(n int64) {
		at.Bytes += n
		if s.progress != nil {
			s.progress(at)
		}
	}
	if state == "yes" {
		if p.stage, err = stageList(c); err != nil {
			return nil, err
		}
		done.resumed = true
	}
	packed, err := f.compress(c, s.puts, at.AllBytes)
	if err != nil {
		return nil, err
	}
	p.tar = tar.NewWriter(packed)
	ahead := readAhead(s.puts, func(it put) bool { _, staged := p.stage["new/"+it.name]; return !staged })
	defer ahead.close()
	err = func() error {
		for _, it := range s.puts {
			read := ahead.take(it)
			err := p.add(it, read)
			if read != nil {
				ahead.giveBack(read)
			}
			if err != nil {
				return err
			}
			at.Files++
			p.moved(0)
		}
		var book []byte
		if s.book != nil {
			book = s.book(p.tokens)
		}
		return p.close(s.puts, s.removes, book)
	}()
	if err == nil {
		err = packed.Close()
	}
	if cerr := c.in.Close(); err == nil {
		err = cerr
	}
	return done, done.read(c, p, s, err)
}

// stageList asks for what an earlier attempt left in the stage.
func stageList(c *conversation) (map[string]string, error) {
	if _, err := io.WriteString(c.in, "list\n"); err != nil {
		return nil, err
	}
	stage := map[string]string{}
	for {
		line, err := c.line()
		if err != nil {
			return nil, err
		}
		if line == "end" {
			return stage, nil
		}
		if name, sum, ok := parseHash(line); ok && line[0] != '\\' {
			stage[name] = "f" + sum
		}
	}
}

// isNear tells whether the far side answers so fast that packing would cost more than it saves. One slow answer may be a busy
// machine's; a way that is long makes all of them slow.
func (c *conversation) isNear() (bool, error) {
	for range 3 {
		began := time.Now()
		if _, err := io.WriteString(c.in, "ping\n"); err != nil {
			return false, err
		}
		if _, err := c.answer("pong"); err != nil {
			return false, err
		}
		if time.Since(began) < nearby {
			return true, nil
		}
	}
	return false, nil
}

const (
	// samples of sampleSize say whether packing makes a shipment at least an eighth smaller.
	samples    = 16
	sampleSize = 32 << 10
)

// packable tells whether it pays to pack these files, from a look at some of them.
func packable(puts []put) bool {
	var files []put
	for _, p := range puts {
		if p.from.Type == 'f' && p.from.Size > 0 {
			files = append(files, p)
		}
	}
	var data []byte
	for i := 0; i < len(files); i += max(1, len(files)/samples) {
		f, info, err := openNear(files[i].from.path)
		if err != nil {
			continue
		}
		part := make([]byte, min(sampleSize, info.Size()))
		n, _ := f.ReadAt(part, max(0, (info.Size()-sampleSize)/2)) // what is said at the beginning of a file is not like the rest
		_ = f.Close()
		data = append(data, part[:n]...)
	}
	encoder, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1))
	if err != nil {
		return true
	}
	defer encoder.Close()
	return len(encoder.EncodeAll(data, nil)) < len(data)-len(data)/8
}

// compress starts the archive: compressed where both sides can and it pays.
func (f *far) compress(c *conversation, puts []put, size int64) (io.WriteCloser, error) {
	pack := "none"
	if size >= compressFrom {
		near, err := c.isNear()
		if err != nil {
			return nil, err
		}
		if !near && packable(puts) {
			pack = compression(c.tools)
		}
	}
	if _, err := io.WriteString(c.in, "go "+pack+"\n"); err != nil {
		return nil, err
	}
	out := bufio.NewWriterSize(c.in, 256<<10)
	var w io.WriteCloser
	var err error
	switch pack {
	case "zstd":
		w, err = zstd.NewWriter(out, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(2), zstd.WithWindowSize(1<<20))
	case "gzip":
		w, err = gzip.NewWriterLevel(out, gzip.BestSpeed)
	default:
		return &flushed{out, out.Flush}, nil
	}
	if err != nil {
		return nil, err
	}
	return &flushed{w, func() error {
		if err := w.Close(); err != nil {
			return err
		}
		return out.Flush()
	}}, nil
}

func compression(tools map[string]bool) string {
	for _, tool := range []string{"zstd", "gzip"} {
		if tools[tool] {
			return tool
		}
	}
	return "none"
}

type flushed struct {
	io.Writer
	flush func() error
}

func (f *flushed) Close() error { return f.flush() }

// errFull says that the far side has no room.
var errFull = errors.New("there is no space left on the far side's disk")

// errCut says that the stream did not arrive whole.
var errCut = errors.New("the transfer broke")

// read takes what the far side says in the end. sent is the error of the stream to it: it counts only where the far side
// does not say better what happened.
func (done *shipped) read(c *conversation, p *packer, s *shipment, sent error) error {
	skipped := map[string]bool{}
	for _, skip := range done.skipped {
		skipped[skip.Path] = true
	}
	for {
		line, err := c.line()
		if err != nil {
			if sent != nil {
				err = sent
			}
			return err
		}
		if count, ok := strings.CutPrefix(line, "committed "); ok {
			if count != strconv.Itoa(len(p.names)-1) {
				return fmt.Errorf("%w: the far side carried out %s of %d steps", errCut, count, len(p.names)-1)
			}
			break
		}
		if line == "cut full" {
			return errFull
		}
		if line == "cut" {
			if sent == nil || brokenPipe(sent) {
				c.settle()
				sent = errCut
			}
			return sent
		}
		index, why, ok := strings.Cut(strings.TrimPrefix(line, "skip "), " ")
		n, err := strconv.Atoi(index)
		if !ok || err != nil || n < 0 || n >= len(p.names) {
			return fmt.Errorf("the far side answers %.80q", line)
		}
		name := p.names[n]
		done.skipped = append(done.skipped, Skip{name, why})
		skipped[name] = true
		delete(p.tokens, name)
	}
	for _, r := range s.removes {
		if !skipped[r.name] {
			done.removed = append(done.removed, r.name)
		}
	}
	if next, err := c.out.Peek(len("bookless\n")); err == nil && string(next) == "bookless\n" {
		done.booked = false
		_, _ = c.line()
	}
	return readStats(c.out, done.items)
}
