// Package config loads elsewhere's settings.
//
// Every setting is one row of a table (driver.Setting). The common rows are here, each backend brings its own, and Table
// composes them. Load reads five layers, the first that sets a key wins: the command line (--set), the process
// environment, HERMES_HOME/config.yaml, HERMES_HOME/.env, the row's default. Explain tells where a value came from and
// what it hid.
//
// The chosen backend alone decides which rows matter: a bad value that was left behind for another backend is no error.
// Named gives the settings as one backend, or one entry of terminal.backends, reads them. That is the view to open a
// sandbox with: it also refuses settings about isolation, limits or place that are not built.
//
// Failures are *Error: one line that names the key, where it was set, its value (never a secret's), what is allowed and
// the next step. Nothing here is executed, and .env never reaches the process environment.
package config
