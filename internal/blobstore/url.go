package blobstore

import (
	"fmt"
	"maps"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"unicode"
)

const example = "write file:///folder or s3://bucket?region=…"

// URLError reports an invalid URL of a store. Reason and Fix contain no secrets.
type URLError struct{ Reason, Fix string }

func (e *URLError) Error() string { return e.Reason + " (" + e.Fix + ")" }

// ParseURL parses and checks the URL of a store without opening the store. It returns a
// *URLError if the URL is invalid. The returned URL is nil only if it cannot be parsed.
func ParseURL(address string) (*url.URL, error) {
	u, err := url.Parse(address)
	if err != nil {
		// The parser's message contains the address, which may contain secrets.
		return nil, &URLError{Reason: "is not a URL", Fix: example}
	}
	if u.User != nil {
		return u, &URLError{
			Reason: "contains credentials",
			Fix:    "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment instead",
		}
	}
	parameters, err := url.ParseQuery(u.RawQuery)
	switch {
	case strings.Contains(address, "#"):
		return u, &URLError{Reason: "contains a fragment after #", Fix: "write %23 for a literal #"}
	case err != nil: // The parser's message contains the value, which may be a secret.
		return u, &URLError{Reason: "has parameters that cannot be parsed", Fix: "write %25 for %, and %3B for ;"}
	}
	for _, name := range slices.Sorted(maps.Keys(parameters)) {
		if len(parameters[name]) > 1 {
			return u, &URLError{
				Reason: fmt.Sprintf("has the parameter %q more than once", name),
				Fix:    "remove all but one",
			}
		}
	}
	switch u.Scheme {
	case "file":
		return u, checkFolder(u, parameters)
	case "s3":
		return u, checkBucket(u, parameters)
	default:
		return u, &URLError{Reason: fmt.Sprintf("has the scheme %q", u.Scheme), Fix: example}
	}
}

func checkFolder(u *url.URL, parameters url.Values) error {
	if name := unknownParameter(parameters, "prefix"); name != "" {
		return &URLError{
			Reason: fmt.Sprintf("has the unknown parameter %q", name),
			Fix:    "remove it; the only parameter of a folder is prefix",
		}
	}
	if u.Host != "" && u.Host != "localhost" || !filepath.IsAbs(u.Path) {
		return &URLError{Reason: "does not contain an absolute path", Fix: "write file:///folder, with three slashes"}
	}
	prefix := parameters.Get("prefix")
	if prefix != "" && (!strings.HasSuffix(prefix, "/") || !filepath.IsLocal(filepath.FromSlash(prefix))) {
		return &URLError{
			Reason: fmt.Sprintf("has the prefix %q, which is not a subfolder", prefix),
			Fix:    "write prefix=name/, with a trailing slash",
		}
	}
	return nil
}

func checkBucket(u *url.URL, parameters url.Values) error {
	if u.Host == "" || strings.Trim(u.Path, "/") != "" {
		return &URLError{
			Reason: "does not name a bucket",
			Fix:    "write s3://bucket?region=…, and a folder in it as prefix=folder/",
		}
	}
	if name := unknownParameter(parameters, "endpoint", "prefix", "region"); name != "" {
		return &URLError{
			Reason: fmt.Sprintf("has the unknown parameter %q", name),
			Fix:    "remove it; a bucket has endpoint, prefix and region, and everything else is set by the variables of the AWS SDK, such as AWS_PROFILE",
		}
	}
	// Clients and services normalize such prefixes differently, so objects would be
	// written to another place.
	prefix := parameters.Get("prefix")
	if strings.Contains(prefix, "//") || strings.Contains(prefix, "../") ||
		strings.ContainsFunc(prefix, unicode.IsControl) {
		return &URLError{Reason: "has a prefix with //, ../ or control characters", Fix: "write prefix=folder/"}
	}
	if endpoint := parameters.Get("endpoint"); endpoint != "" && !isServer(endpoint) {
		return &URLError{
			Reason: "has an endpoint that is not the URL of a server",
			Fix:    "write endpoint=https://host, with a port if it needs one",
		}
	}
	return nil
}

// unknownParameter returns the first parameter that is not in known, or "".
func unknownParameter(parameters url.Values, known ...string) string {
	for _, name := range slices.Sorted(maps.Keys(parameters)) {
		if !slices.Contains(known, name) {
			return name
		}
	}
	return ""
}

// isServer reports whether a text is the URL of a server without a path.
func isServer(text string) bool {
	u, err := url.Parse(text)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && strings.Trim(u.Path, "/") == ""
}
