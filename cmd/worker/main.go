// Command worker is the sexton program. The binary is built from this package.
package main

import (
	"os"

	"sexton/internal/cli/root"
)

func main() {
	os.Exit(root.Main(os.Args[1:], os.Environ(), os.Stdout, os.Stderr))
}
