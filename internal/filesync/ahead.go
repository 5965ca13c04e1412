package filesync

import (
	"crypto/sha256"
	"errors"
	"io"
	"io/fs"
	"os"
	"time"
)

const (
	// Files up to aheadSize are read and hashed before it is their turn in the stream, readersAhead at once, windowAhead at most.
	aheadSize    = 128 << 10
	readersAhead = 2
	windowAhead  = 16
)

// content is a file that was read whole.
type content struct {
	data   []byte // nil: it is not a small file any more
	buffer []byte // to give back
	info   fs.FileInfo
	stat   nearStat
	token  string
	err    error // why it was not read
}

// ahead reads small files while earlier ones are sent. It must be closed.
type ahead struct {
	wanted func(put) bool
	order  chan chan content
	free   chan []byte
	stop   chan struct{}
}

type aheadJob struct {
	path   string
	buffer []byte
	to     chan content
}

// readAhead starts to read the files among puts that are wanted.
func readAhead(puts []put, wanted func(put) bool) *ahead {
	a := &ahead{order: make(chan chan content, windowAhead), free: make(chan []byte, windowAhead), stop: make(chan struct{})}
	a.wanted = func(p put) bool { return p.from.Type == 'f' && p.from.Size <= aheadSize && wanted(p) }
	for range windowAhead {
		a.free <- nil // made when it is first used
	}
	jobs := make(chan aheadJob)
	for range readersAhead {
		go a.read(jobs)
	}
	go func() {
		defer close(jobs)
		for _, p := range puts {
			if !a.wanted(p) {
				continue
			}
			job := aheadJob{path: p.from.path, to: make(chan content, 1)}
			select { // in the order in which they are given back, or later files could hold all that the next one needs
			case job.buffer = <-a.free:
			case <-a.stop:
				return
			}
			if job.buffer == nil {
				job.buffer = make([]byte, aheadSize)
			}
			a.order <- job.to // as many as there are buffers
			select {
			case jobs <- job:
			case <-a.stop:
				return
			}
		}
	}()
	return a
}

func (a *ahead) read(jobs <-chan aheadJob) {
	for job := range jobs {
		job.to <- readWhole(job.path, job.buffer)
	}
}

// take gives the content of the next put; nil where it was not wanted. It must be given back.
func (a *ahead) take(p put) *content {
	if !a.wanted(p) {
		return nil
	}
	c := <-<-a.order
	return &c
}

func (a *ahead) giveBack(c *content) { a.free <- c.buffer }

func (a *ahead) close() { close(a.stop) }

// readWhole reads a file of at most the buffer's length; one that changes meanwhile is read again.
func readWhole(path string, buffer []byte) (c content) {
	c.buffer = buffer
	f, info, err := openNear(path)
	if err != nil {
		c.err = err
		return c
	}
	defer f.Close()
	c.info = info
	c.data, c.stat, c.err = readSteady(f, buffer)
	if c.data != nil {
		sum := sha256.Sum256(c.data)
		c.token = fileToken(sum[:])
	}
	return c
}

// readSteady reads a file that does not change meanwhile. One that is longer than the buffer has neither data nor an error.
func readSteady(f *os.File, buffer []byte) (data []byte, st nearStat, err error) {
	for range readTries {
		before, err := f.Stat()
		if err != nil {
			return nil, st, err
		}
		if before.Size() > int64(len(buffer)) {
			return nil, st, nil
		}
		st = statOf(before)
		checked := time.Now().UnixNano()
		data = buffer[:before.Size()]
		_, err = io.ReadFull(io.NewSectionReader(f, 0, before.Size()), data)
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, st, err
		}
		after, serr := f.Stat()
		if err == nil && serr == nil && statOf(after) == st {
			st.Checked = checked
			return data, st, nil
		}
	}
	return nil, st, errChanging
}
