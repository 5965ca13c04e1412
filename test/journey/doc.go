// Package journey holds no code: its tests do on every backend what an agent does for a living, with the built program and a client
// of the Model Context Protocol.
package journey
