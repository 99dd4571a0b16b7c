// Command sexton is the program under its own name, for go install. Command worker is the
// same program.
package main

import (
	"os"

	"sexton/internal/cli/root"
)

func main() {
	os.Exit(root.Main(os.Args[1:], os.Environ(), os.Stdout, os.Stderr))
}
