package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/elsewhere-sh/elsewhere/driver"
)

// value is a parsed value and its text form.
type value struct {
	text string
	v    any // string, bool, int64, float64, time.Duration, []string or map[string]string
}

func (a value) equal(b value) bool { return reflect.DeepEqual(a.v, b.v) }

// parse turns text into a row's value. An error's text says what is allowed.
func parse(row *driver.Setting, text string, x expander) (value, error) {
	if alias, ok := row.ValueAliases[strings.ToLower(strings.TrimSpace(text))]; ok {
		text = alias
	}
	val, err := parseType(row, text, x)
	if err != nil {
		return value{}, err
	}
	if row.Check != nil && val.v != "" {
		if err := row.Check(val.text); err != nil {
			return value{}, err
		}
	}
	return val, nil
}

func parseType(row *driver.Setting, text string, x expander) (value, error) {
	var v any
	var err error
	switch row.Type {
	case driver.String, driver.Table:
		v, err = parseWord(row.Values, text)
	case driver.Bool:
		v, err = parseBool(text)
	case driver.Int:
		v, err = parseInt(text)
	case driver.Float:
		v, err = parseFloat(text)
	case driver.Seconds:
		v, err = parseSeconds(text)
	case driver.Bytes:
		v, err = parseBytes(text, 1)
	case driver.Megabytes:
		v, err = parseBytes(text, 1<<20)
	case driver.Path:
		v, err = x.path(text)
	case driver.SandboxPath:
		v, err = x.sandboxPath(text)
	case driver.List:
		v, err = parseList(text)
	case driver.SandboxPaths:
		v, err = x.sandboxPaths(text)
	case driver.Map:
		v, err = parseMap(text)
	default:
		err = fmt.Errorf("a type that exists, not %q", row.Type)
	}
	if err != nil {
		return value{}, err
	}
	return value{text: textOf(v, text), v: v}, nil
}

// textOf is the text form of a value: lists and maps as JSON, numbers as they were written.
func textOf(v any, written string) string {
	switch v := v.(type) {
	case string:
		return v
	case bool:
		return strconv.FormatBool(v)
	case []string, map[string]string:
		if reflect.ValueOf(v).Len() == 0 {
			return ""
		}
		return toJSON(v)
	}
	return strings.TrimSpace(written)
}

func toJSON(v any) string {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	// Strings, and lists and maps of them, always encode.
	_ = enc.Encode(v)
	return strings.TrimSuffix(b.String(), "\n")
}

func parseWord(allowed []string, text string) (string, error) {
	if len(allowed) == 0 {
		return text, nil
	}
	word := strings.TrimSpace(text)
	for _, a := range allowed {
		if strings.EqualFold(a, word) {
			return a, nil
		}
	}
	names := slices.Clone(allowed)
	for i, name := range names {
		if name == "" {
			names[i] = `""`
		}
	}
	return "", errors.New(orList(names))
}

func parseBool(text string) (bool, error) {
	switch strings.ToLower(strings.TrimSpace(text)) {
	case "true", "1", "yes", "on":
		return true, nil
	case "false", "0", "no", "off":
		return false, nil
	}
	return false, errors.New("true or false (1, yes, on; 0, no, off)")
}

var errInt = errors.New("a whole number, 0 or more")

func parseInt(text string) (int64, error) {
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil || n < 0 {
		return 0, errInt
	}
	return n, nil
}

var errFloat = errors.New("a number, 0 or more")

func parseFloat(text string) (float64, error) {
	f, err := decimal(strings.TrimSpace(text))
	if err != nil {
		return 0, errFloat
	}
	return f, nil
}

// decimal parses a plain decimal number: no sign but +, no NaN, no infinity, no hexadecimal.
func decimal(text string) (float64, error) {
	if strings.ContainsFunc(text, func(r rune) bool { return !strings.ContainsRune("0123456789.eE+-", r) }) {
		return 0, strconv.ErrSyntax
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || f < 0 || math.IsInf(f, 0) || math.Signbit(f) {
		return 0, strconv.ErrSyntax
	}
	return f, nil
}

// ParseDuration parses a time as settings have it: seconds, or with a unit (90, 90s, 1h30m, 7d). Not negative.
func ParseDuration(text string) (time.Duration, error) { return parseSeconds(text) }

// ParseBytes parses a size as settings have it: bytes, or with a unit (4096, 512k, 2GiB). Not negative.
func ParseBytes(text string) (int64, error) { return parseBytes(text, 1) }

var errSeconds = errors.New("a number of seconds, 0 or more, or one with a unit such as 90s, 1h30m or 7d")

func parseSeconds(text string) (time.Duration, error) {
	text = strings.TrimSpace(text)
	if f, err := decimal(text); err == nil {
		return seconds(f)
	}
	if days, ok := strings.CutSuffix(text, "d"); ok {
		if f, err := decimal(days); err == nil {
			return seconds(f * 24 * 60 * 60)
		}
	}
	if d, err := time.ParseDuration(text); err == nil && d >= 0 && !strings.HasPrefix(text, "-") {
		return d, nil
	}
	return 0, errSeconds
}

func seconds(f float64) (time.Duration, error) {
	// The largest float64 below 1<<63 is what still fits.
	if ns := math.Round(f * float64(time.Second)); ns < math.MaxInt64 {
		return time.Duration(ns), nil
	}
	return 0, errors.New("a duration of at most 292 years")
}

var byteUnits = map[string]float64{
	"": 0, "b": 1,
	"k": 1 << 10, "kb": 1 << 10, "kib": 1 << 10,
	"m": 1 << 20, "mb": 1 << 20, "mib": 1 << 20,
	"g": 1 << 30, "gb": 1 << 30, "gib": 1 << 30,
	"t": 1 << 40, "tb": 1 << 40, "tib": 1 << 40,
}

// parseBytes parses a size; plain is the unit of a number without one.
func parseBytes(text string, plain float64) (int64, error) {
	text = strings.TrimSpace(text)
	digits := strings.TrimRight(text, "bBiIkKmMgGtT ")
	unit, known := byteUnits[strings.ToLower(strings.TrimSpace(text[len(digits):]))]
	if unit == 0 {
		unit = plain
	}
	f, err := decimal(digits)
	if err != nil || !known {
		what := "bytes"
		if plain != 1 {
			what = "MiB"
		}
		return 0, fmt.Errorf("a number of %s, 0 or more, or one with a unit such as 512k, 64m or 2g", what)
	}
	if f*unit >= math.MaxInt64 {
		return 0, errors.New("a size below 8 EiB")
	}
	return int64(f * unit), nil
}

var errList = errors.New(`a list: ["a", "b"] as JSON, or a,b`)

func parseList(text string) ([]string, error) {
	text = strings.TrimSpace(text)
	if text == "" {
		return nil, nil
	}
	if strings.HasPrefix(text, "[") {
		var list []string
		if err := strictJSON(text, &list); err != nil {
			return nil, errList
		}
		return list, nil
	}
	var list []string
	for item := range strings.SplitSeq(text, ",") {
		if item = strings.TrimSpace(item); item != "" {
			list = append(list, item)
		}
	}
	return list, nil
}

var errMap = errors.New(`a map of texts: {"NAME": "value"} as JSON`)

func parseMap(text string) (map[string]string, error) {
	text = strings.TrimSpace(text)
	// Hermes writes an empty list where it has no map.
	if text == "" || text == "[]" {
		return nil, nil
	}
	var raw map[string]any
	if err := strictJSON(text, &raw); err != nil {
		return nil, errMap
	}
	m := make(map[string]string, len(raw))
	for name, v := range raw {
		switch v := v.(type) {
		case string:
			m[name] = v
		case json.Number:
			m[name] = v.String()
		case bool:
			m[name] = strconv.FormatBool(v)
		case nil:
			m[name] = ""
		default:
			return nil, errMap
		}
	}
	return m, nil
}

// strictJSON decodes one JSON value with nothing behind it. A null is not a list or map, nor one of its texts.
func strictJSON(text string, into any) error {
	dec := json.NewDecoder(bytes.NewReader([]byte(text)))
	dec.UseNumber()
	if list, ok := into.(*[]string); ok {
		return strictList(dec, list)
	}
	if err := dec.Decode(into); err != nil {
		return err
	}
	return atEnd(dec)
}

func strictList(dec *json.Decoder, list *[]string) error {
	var items []*string
	if err := dec.Decode(&items); err != nil {
		return err
	}
	for _, item := range items {
		if item == nil {
			return errList
		}
		*list = append(*list, *item)
	}
	return atEnd(dec)
}

func atEnd(dec *json.Decoder) error {
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more than one value")
	}
	return nil
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// orList writes "a, b or c".
func orList(names []string) string {
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:len(names)-1], ", ") + " or " + names[len(names)-1]
}
