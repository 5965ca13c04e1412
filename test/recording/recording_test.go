//go:build unix

package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
)

const (
	testImage = "elsewhere-test/debian"
	drawn     = "../../docs/recording.svg"
)

// textOf reads a picture as XML and returns its lines of text; it fails where it is not well-formed.
func textOf(t *testing.T, svg []byte) string {
	t.Helper()
	var b strings.Builder
	d := xml.NewDecoder(bytes.NewReader(svg))
	inText := false
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return b.String()
		}
		if err != nil {
			t.Fatalf("the picture is no XML: %v", err)
		}
		switch x := token.(type) {
		case xml.StartElement:
			inText = x.Name.Local == "text"
		case xml.EndElement:
			inText = false
			if x.Name.Local == "g" {
				b.WriteString("\n")
			}
		case xml.CharData:
			if inText {
				b.Write(x)
			}
		}
	}
}

// TestThePictureIsOfTheSession: it is well-formed, has every line of the session, and says nothing of the machine on which it was made.
func TestThePictureIsOfTheSession(t *testing.T) {
	svg, err := os.ReadFile(drawn)
	if err != nil {
		t.Fatal(err)
	}
	joined := strings.NewReplacer("\n", "", " ", "").Replace(textOf(t, svg))
	for _, l := range parseSession(session) {
		if want := strings.ReplaceAll(l.remark+l.command, " ", ""); !strings.Contains(joined, want) {
			t.Errorf("it has no line %q: run `make recording`", l.remark+l.command)
		}
	}
	host, _ := os.Hostname()
	for _, private := range []string{"/tmp/", "/home/", "/work/", host} {
		if private != "" && bytes.Contains(svg, []byte(private)) {
			t.Errorf("it shows %q", private)
		}
	}
}

func TestAScreenIsDrawnAsItLooks(t *testing.T) {
	shots := []shot{
		{line: line{remark: "# a & b"}},
		{line: line{command: "echo '<x>'"}, output: "10 %\r20 %\r    \r<x> \x1b[31mred\x1b[0m\x1b[K\r\n" + strings.Repeat("w", 25) + "\r\n"},
	}
	svg := draw(shots, 20)
	want := "# a & b\n$echo '<x>'\n<x>red\n" + strings.Repeat("w", 20) + "\nwwwww\n"
	if got := textOf(t, svg); got != want {
		t.Errorf("%q\nwant\n%q", got, want)
	}
	if !bytes.Contains(svg, []byte(palette[1])) {
		t.Error("nothing is red")
	}
}

// TestTheSessionRuns plays the session again: what the picture shows is what the program still does.
func TestTheSessionRuns(t *testing.T) {
	if testing.Short() {
		t.Skip("short: it is the whole program, in a container")
	}
	if err := exec.CommandContext(t.Context(), "docker", "image", "inspect", testImage).Run(); err != nil {
		t.Skipf("there is no Docker here with the image %s (%v): test/testbed/docker.sh makes it", testImage, err)
	}
	s, err := newStage(t.Context(), t.TempDir(), testImage)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.clear(); err != nil {
			t.Error(err)
		}
	})
	shots, err := s.play(t.Context(), parseSession(session))
	if err != nil {
		t.Fatal(err)
	}
	svg, err := os.ReadFile(drawn)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := said(textOf(t, draw(shots, columns))), said(textOf(t, svg)); got != want {
		t.Errorf("the session now says\n%s\nand the picture\n%s\nrun `make recording` if that is right", got, want)
	}
}

// said is the text without what depends on the machine's engine.
func said(text string) string {
	var b strings.Builder
	for l := range strings.Lines(text) {
		if !strings.HasPrefix(l, "elsewhere: notice:") && l != "\n" {
			b.WriteString(l)
		}
	}
	return b.String()
}
