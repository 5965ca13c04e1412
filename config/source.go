package config

import "fmt"

// layer is one of the places that a value can come from, the strongest first.
type layer int

const (
	fromName    layer = iota // the backend was asked for by name
	fromFlag                 // --set
	fromEntry                // an entry of terminal.backends
	fromEnv                  // the process environment
	fromFile                 // config.yaml
	fromDotenv               // .env
	fromDefault              // the row
)

// source is one place that sets a row, with the text that it has there.
type source struct {
	layer layer
	name  string // the flag's key, the variable or the file
	file  string // the file that holds it; may be empty
	line  int
	text  string
	// problem says that the value has not even the shape of the row's type; it matters only where the row does.
	problem string
}

// origin says where the value is, for people.
func (s source) origin() string {
	switch s.layer {
	case fromName:
		return "chosen by name"
	case fromFlag:
		return "--set " + s.name
	case fromEnv:
		return s.name
	case fromDefault:
		return "default"
	case fromDotenv:
		return fmt.Sprintf("%s in %s:%d", s.name, s.file, s.line)
	}
	return fmt.Sprintf("%s:%d", s.file, s.line)
}

// hint is what to do about a bad value there.
func (s source) hint() string {
	switch s.layer {
	case fromFlag:
		return "correct --set " + s.name
	case fromEnv:
		return "correct or unset " + s.name
	case fromDotenv, fromFile, fromEntry:
		return fmt.Sprintf("correct %s:%d", s.file, s.line)
	}
	return "correct it"
}
