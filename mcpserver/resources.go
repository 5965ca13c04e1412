package mcpserver

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"os"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	outputScheme = "elsewhere://output/"
	// resourceBytes is how much of an output one read of a resource gives at most.
	resourceBytes = 1 << 20
)

// outputURI names the whole output of a call.
func outputURI(id string) string { return outputScheme + id }

func (s *Server) addResources() {
	s.mcp.AddResourceTemplate(&mcp.ResourceTemplate{
		Name: "output", Title: "Long output", URITemplate: outputScheme + "{id}{?offset,limit}", MIMEType: "text/plain",
		Description: "The whole output of a command of yours that was too long for its result (output_uri), from the byte offset on, at most limit bytes (1 MiB). _meta says how long it is and where to go on.",
	}, s.readOutput)
}

// readOutput reads a part of an output that this client's own command left.
func (s *Server) readOutput(_ context.Context, req *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
	uri := req.Params.URI
	c, err := s.client(req.Session)
	if err != nil {
		return nil, err
	}
	id, query, _ := strings.Cut(strings.TrimPrefix(uri, outputScheme), "?")
	file, ok := c.output(id)
	if !ok {
		return nil, mcp.ResourceNotFoundError(uri)
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		return nil, mcp.ResourceNotFoundError(uri)
	}
	offset, err1 := number(values.Get("offset"), 0)
	limit, err2 := number(values.Get("limit"), resourceBytes)
	if err1 != nil || err2 != nil {
		return nil, mcp.ResourceNotFoundError(uri)
	}
	part, err := readPart(file, offset, limit)
	if err != nil {
		return nil, fmt.Errorf("the output is not kept any more: %w", err)
	}
	contents := &mcp.ResourceContents{URI: uri, MIMEType: "text/plain", Meta: mcp.Meta{"offset": part.from, "next": part.next, "size": part.size, "end": part.next >= part.size}}
	if utf8.Valid(part.data) {
		contents.Text = string(part.data)
	} else {
		contents.MIMEType = "application/octet-stream"
		contents.Blob = part.data
	}
	return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{contents}}, nil
}

// number reads a count of bytes; "" is otherwise.
func number(text string, otherwise int64) (int64, error) {
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("%q is no count of bytes", text)
	}
	return n, nil
}

// part is a part of a file.
type part struct {
	from, next, size int64
	data             []byte
}

// readPart reads at most limit bytes (1 MiB) of a file from offset on; a negative offset counts from its end. No character is
// split at its end.
func readPart(file string, offset, limit int64) (part, error) {
	f, err := os.Open(file)
	if err != nil {
		return part{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return part{}, err
	}
	p := part{from: offset, size: info.Size()}
	if offset < 0 {
		p.from = max(0, p.size+offset)
	}
	if limit <= 0 || limit > resourceBytes {
		limit = resourceBytes
	}
	data := make([]byte, max(0, min(limit, p.size-p.from)))
	n, err := f.ReadAt(data, p.from)
	if err != nil && err != io.EOF {
		return part{}, err
	}
	p.data = data[:n]
	if p.from+int64(n) < p.size {
		p.data = p.data[:wholeRunes(p.data)]
	}
	p.next = p.from + int64(len(p.data))
	return p, nil
}

// wholeRunes is how many bytes of b there are without a character at its end that is not whole.
func wholeRunes(b []byte) int {
	for i := len(b) - 1; i >= max(0, len(b)-utf8.UTFMax); i-- {
		if utf8.RuneStart(b[i]) {
			if i > 0 && !utf8.FullRune(b[i:]) {
				return i
			}
			break
		}
	}
	return len(b)
}
