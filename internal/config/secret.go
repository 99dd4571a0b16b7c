package config

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"sexton/internal/yamlfile"
)

// mask is printed in place of secrets.
const mask = "***"

// Secret is a text that is printed as ***. The conversion string(s) returns the text.
type Secret string

// String returns *** if the secret is not empty.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return mask
}

// MarshalYAML returns *** if the secret is not empty.
func (s Secret) MarshalYAML() (any, error) { return s.String(), nil }

// GoString hides the secret from %#v.
func (s Secret) GoString() string { return s.String() }

// URL is a connection string: a URL or, for Postgres, keyword=value pairs. It is printed
// with *** for passwords. The conversion string(u) returns the text.
type URL string

// String returns the connection string with *** for its passwords.
func (u URL) String() string {
	text := string(u)
	if scheme, rest, ok := strings.Cut(text, "://"); ok && !strings.ContainsAny(scheme, " ='") {
		return scheme + "://" + hideInURL(rest)
	}
	return hideInKeywords(text)
}

// MarshalYAML returns the connection string with *** for its passwords.
func (u URL) MarshalYAML() (any, error) { return u.String(), nil }

// GoString hides the passwords from %#v.
func (u URL) GoString() string { return u.String() }

// hideInURL masks passwords in a URL without its scheme. It edits the text, because
// rendering a parsed URL would also change other parts.
func hideInURL(rest string) string {
	end := len(rest)
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		end = i
	}
	if !strings.Contains(rest[:end], "@") && strings.Contains(rest[:end], ":") {
		// The password may contain /, ? or #. The text before that character then looks
		// like host and port, and the password ends at the last @.
		end = max(end, strings.LastIndex(rest, "@")+1)
	}
	authority, rest := rest[:end], rest[end:]
	if atSign := strings.LastIndex(authority, "@"); atSign >= 0 {
		user, password, _ := strings.Cut(authority[:atSign], ":")
		if password != "" {
			authority = user + ":" + mask + authority[atSign:]
		}
	}
	path, query, ok := strings.Cut(rest, "?")
	if !ok {
		return authority + rest
	}
	pairs := strings.Split(query, "&")
	for i, pair := range pairs {
		key, value, _ := strings.Cut(pair, "=")
		if name, err := url.QueryUnescape(key); value != "" && (err != nil || isSecretKey(name)) {
			pairs[i] = key + "=" + mask
		}
	}
	return authority + path + "?" + strings.Join(pairs, "&")
}

// hideInKeywords masks passwords in a keyword=value string. Like libpq, it allows spaces
// around =, values in single quotes, and backslash escapes.
func hideInKeywords(text string) string {
	var out strings.Builder
	for text != "" {
		equals := strings.Index(text, "=")
		if equals < 0 {
			break
		}
		key := strings.TrimSpace(text[:equals])
		start := equals + 1
		for start < len(text) && isSpace(text[start]) {
			start++
		}
		end := valueEnd(text, start)
		if isSecretKey(key) && end > start {
			out.WriteString(text[:start] + mask)
		} else {
			out.WriteString(text[:end])
		}
		text = text[end:]
	}
	return out.String() + text
}

func valueEnd(text string, start int) int {
	quoted := start < len(text) && text[start] == '\''
	i := start
	if quoted {
		i++
	}
	for ; i < len(text); i++ {
		switch {
		case text[i] == '\\':
			i++
		case quoted && text[i] == '\'':
			return i + 1
		case !quoted && isSpace(text[i]):
			return i
		}
	}
	return len(text)
}

func isSpace(c byte) bool { return strings.IndexByte(" \t\n\r\f\v", c) >= 0 }

func isSecretKey(key string) bool {
	key = strings.ToLower(key)
	return slices.ContainsFunc([]string{"password", "secret", "token", "access_key"}, func(part string) bool {
		return strings.Contains(key, part)
	})
}

// checkURL returns a description of what is wrong with a connection string, and the fix.
// It does not return the parser's message, which repeats parts of a malformed string and
// may contain the password.
func checkURL(u URL) (message, fix string) {
	if strings.TrimSpace(string(u)) == "" {
		return "is empty", "write postgres://user:password@host:5432/database"
	}
	_, err := pgconn.ParseConfig(string(u))
	if err == nil {
		return "", ""
	}
	if file, ok := errors.AsType[*fs.PathError](err); ok {
		return "names a file that cannot be read: " + file.Err.Error(), ""
	}
	return "is not a Postgres connection string",
		"write postgres://user:password@host:5432/database, with % codes for special characters in the password"
}

// maxSecret is the maximum size of a secret file, in bytes.
const maxSecret = 4 << 10

// secretFile sets the secret of the given key to the content of the file at path. It does
// nothing if path is empty.
func (v *validator) secretFile(key, path string, secret *Secret) {
	if path == "" {
		return
	}
	file := key + "_file"
	if *secret != "" {
		v.fail(file, "is set in addition to "+key, "keep one of them")
		return
	}
	text, err := readSecret(path)
	if err != nil {
		v.fail(file, err.Error(), "")
		// After an error, a placeholder replaces the secret. An empty secret would cause
		// further findings about missing credentials.
		text = mask
	}
	*secret = Secret(text)
}

// readSecret returns the content of a file without its last line end. Errors do not
// repeat the content.
func readSecret(path string) (string, error) {
	text, err := yamlfile.ReadFile(path)
	secret := strings.TrimSuffix(strings.TrimSuffix(string(text), "\n"), "\r")
	switch {
	case err != nil:
		return "", fmt.Errorf("names a file that cannot be read: %w", err)
	case len(text) > maxSecret:
		return "", fmt.Errorf("secret file is larger than %d bytes", maxSecret)
	case secret == "":
		return "", errors.New("secret file is empty")
	case strings.ContainsAny(secret, "\r\n"):
		return "", errors.New("secret file has several lines; it must contain only the secret")
	}
	return secret, nil
}
