package definitions

import (
	"errors"
	"fmt"
	"strings"
)

// maxIdentifier is the number of bytes after which Postgres cuts names.
const maxIdentifier = 63

// ParseName reads a table name. "schema.table" is split at its first dot and otherwise taken as it stands,
// upper-case letters included. A part in double quotes, with "" for a quote in it, may have dots:
// "my.schema"."my.table". The error continues a sentence that begins with the name's role.
func ParseName(text string) (Name, error) {
	first, rest, qualified, err := namePart(text, true)
	if err != nil {
		return Name{}, err
	}
	if !qualified {
		if err := checkIdentifier(first); err != nil {
			return Name{}, err
		}
		return Name{Table: first}, nil
	}
	second, _, _, err := namePart(rest, false)
	if err != nil {
		return Name{}, err
	}
	for _, part := range []string{first, second} {
		if err := checkIdentifier(part); err != nil {
			return Name{}, err
		}
	}
	return Name{Schema: first, Table: second}, nil
}

// namePart reads up to the dot, or, where none may follow, to the end.
func namePart(text string, dot bool) (part, rest string, found bool, err error) {
	if !strings.HasPrefix(text, `"`) {
		if !dot {
			return text, "", false, nil
		}
		part, rest, found = strings.Cut(text, ".")
		return part, rest, found, nil
	}
	end := 1
	for {
		i := strings.Index(text[end:], `"`)
		if i < 0 {
			return "", "", false, errors.New("lacks its closing double quote")
		}
		end += i + 1
		if !strings.HasPrefix(text[end:], `"`) {
			break
		}
		end++
	}
	part = strings.ReplaceAll(text[1:end-1], `""`, `"`)
	switch {
	case text[end:] == "":
		return part, "", false, nil
	case dot && text[end] == '.':
		return part, text[end+1:], true, nil
	default:
		return "", "", false, errors.New("goes on after its closing double quote")
	}
}

func checkIdentifier(name string) error {
	switch {
	case name == "":
		return errors.New("is empty")
	case strings.Contains(name, "\x00"):
		return errors.New("contains a NUL character")
	case len(name) > maxIdentifier:
		return fmt.Errorf("has %d bytes; Postgres allows %d", len(name), maxIdentifier)
	default:
		return nil
	}
}
