// Command worker builds the sexton binary.
package main

import (
	"os"

	"sexton/internal/app"
)

func main() {
	os.Exit(app.Main(os.Args[1:], os.Environ(), os.Stdout, os.Stderr))
}
