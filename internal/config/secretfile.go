package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
)

// maxSecret is the longest secret that a file may hold, in bytes.
const maxSecret = 4 << 10

// secretFile reads the secret of key from the file that key_file names, if it names one.
func (v *validator) secretFile(key, path string, secret *Secret) {
	if path == "" {
		return
	}
	file := key + "_file"
	if *secret != "" {
		v.fail(file, "is set beside "+key, "keep one of them")
		return
	}
	text, err := readSecret(path)
	if err != nil {
		v.fail(file, err.Error(), "")
		text = mask // What is wrong has been said; nothing follows from it.
	}
	*secret = Secret(text)
}

// readSecret returns the text of a file without its last line end. No error repeats any of it.
func readSecret(path string) (string, error) {
	file, err := os.Open(path)
	if pathErr, ok := errors.AsType[*fs.PathError](err); ok {
		err = pathErr.Err
	}
	if err != nil {
		return "", fmt.Errorf("names a file that cannot be read: %w", err)
	}
	defer file.Close()
	// A byte more than allowed tells that there is more.
	text, err := io.ReadAll(io.LimitReader(file, maxSecret+1))
	if pathErr, ok := errors.AsType[*fs.PathError](err); ok {
		err = pathErr.Err
	}
	secret := strings.TrimSuffix(strings.TrimSuffix(string(text), "\n"), "\r")
	switch {
	case err != nil:
		return "", fmt.Errorf("names a file that cannot be read: %w", err)
	case len(text) > maxSecret:
		return "", fmt.Errorf("names a file of more than %d bytes, which is no secret", maxSecret)
	case secret == "":
		return "", errors.New("names a file that is empty")
	case strings.ContainsAny(secret, "\r\n"):
		return "", errors.New("names a file of several lines; it must hold the secret and nothing else")
	}
	return secret, nil
}
