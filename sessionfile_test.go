package elsewhere

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"
)

func TestASessionFileThatWasReplacedWhileItWasReadIsReadAgain(t *testing.T) {
	file := filepath.Join(t.TempDir(), "s.json")
	writer, reader := &sessionFile{path: file}, &sessionFile{path: file}
	done := make(chan error, 1)
	n := 0
	stop := time.Now().Add(500 * time.Millisecond)
	put := func() error {
		n++
		writer.data = sessionData{Schema: 1, ID: "x", State: fmt.Sprint(n)}
		return writer.write()
	}
	for time.Now().Before(stop) {
		if err := put(); err != nil {
			t.Fatal(err)
		}
		go func() { done <- put() }()
		if err := reader.read(); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if _, err := reader.reload(); err != nil {
			t.Fatal(err)
		}
		if reader.data.State != writer.data.State {
			t.Fatalf("version %s is current, and the reader keeps %s", writer.data.State, reader.data.State)
		}
	}
}
