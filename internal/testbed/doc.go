// Package testbed gives tests a place of their own in what test/testbed brings up, and takes it away with the test. What is not
// there makes a test skip, with the part of the testbed that would bring it.
package testbed

// Cache is where the testbed's images and trees of files are.
const Cache = "/var/cache/elsewhere-testbed"
