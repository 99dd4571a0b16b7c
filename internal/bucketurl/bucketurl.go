// Package bucketurl reads the URL of a store of objects without a look at the store, so that a configuration is refused for the same
// reasons, and in the same words, as the store would be.
package bucketurl

import (
	"fmt"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"unicode"
)

const example = "write file:///folder or s3://bucket?region=…"

// Error is what is wrong with a URL and what to do about it. Neither repeats anything that may be secret.
type Error struct{ Reason, Fix string }

func (e *Error) Error() string { return e.Reason + " (" + e.Fix + ")" }

// Parse returns the URL, and an *Error where no store can be behind it. The URL is nil only where it is none at all.
func Parse(address string) (*url.URL, error) {
	u, err := url.Parse(address)
	if err != nil {
		// The parser's own message repeats the address.
		return nil, &Error{Reason: "is no URL", Fix: example}
	}
	if u.User != nil {
		return u, &Error{Reason: "holds credentials", Fix: "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment instead"}
	}
	switch u.Scheme {
	case "file":
		return u, folder(u)
	case "s3":
		return u, bucket(u)
	default:
		return u, &Error{Reason: fmt.Sprintf("has the scheme %q", u.Scheme), Fix: example}
	}
}

func folder(u *url.URL) error {
	parameters := u.Query()
	prefix := parameters.Get("prefix")
	parameters.Del("prefix")
	for name := range parameters {
		return &Error{Reason: fmt.Sprintf("has the unknown parameter %q", name), Fix: "remove it; a folder knows only prefix"}
	}
	if u.Host != "" && u.Host != "localhost" || !filepath.IsAbs(u.Path) {
		return &Error{Reason: "names no absolute path", Fix: "write file:///folder, with three slashes"}
	}
	if prefix != "" && (!strings.HasSuffix(prefix, "/") || !filepath.IsLocal(filepath.FromSlash(prefix))) {
		return &Error{Reason: fmt.Sprintf("has the prefix %q, which is no folder inside", prefix), Fix: "write prefix=name/, with a slash at its end"}
	}
	return nil
}

func bucket(u *url.URL) error {
	if u.Host == "" || strings.Trim(u.Path, "/") != "" {
		return &Error{Reason: "names no bucket", Fix: "write s3://bucket?region=…, a folder in it as prefix=folder/"}
	}
	// The library for buckets escapes these in keys, uploads do not: they would go elsewhere.
	if prefix := u.Query().Get("prefix"); strings.Contains(prefix, "//") || strings.Contains(prefix, "../") || strings.ContainsFunc(prefix, unicode.IsControl) {
		return &Error{Reason: "has a prefix with //, ../ or control characters", Fix: "write prefix=folder/"}
	}
	if value := u.Query().Get("use_path_style"); value != "" {
		if _, err := strconv.ParseBool(value); err != nil {
			return &Error{Reason: "has use_path_style=" + value, Fix: "write true or false"}
		}
	}
	return nil
}
