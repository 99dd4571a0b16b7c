// Package bucketurl reads the URL of a store of objects without a look at the store, so that a configuration is refused for the same
// reasons, and in the same words, as the store would be.
package bucketurl

import (
	"fmt"
	"maps"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

const example = "write file:///folder or s3://bucket?region=…"

// Error says what is wrong with a URL and what to do about it. Neither repeats anything that may be secret.
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
	parameters, err := url.ParseQuery(u.RawQuery)
	switch {
	case strings.Contains(address, "#"):
		return u, &Error{Reason: "has a part behind #, which belongs to no store", Fix: "write %23 for a # that is meant so"}
	case err != nil: // It repeats the value.
		return u, &Error{Reason: "has parameters that cannot be read", Fix: "write %25 for %, and %3B for ;"}
	}
	for _, name := range slices.Sorted(maps.Keys(parameters)) {
		if len(parameters[name]) > 1 {
			return u, &Error{Reason: fmt.Sprintf("has the parameter %q more than once", name), Fix: "leave one of them"}
		}
	}
	switch u.Scheme {
	case "file":
		return u, folder(u, parameters)
	case "s3":
		return u, bucket(u, parameters)
	default:
		return u, &Error{Reason: fmt.Sprintf("has the scheme %q", u.Scheme), Fix: example}
	}
}

func folder(u *url.URL, parameters url.Values) error {
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

func bucket(u *url.URL, values url.Values) error {
	if u.Host == "" || strings.Trim(u.Path, "/") != "" {
		return &Error{Reason: "names no bucket", Fix: "write s3://bucket?region=…, a folder in it as prefix=folder/"}
	}
	// Clients and services write these in other ways: objects would go to another place.
	if prefix := values.Get("prefix"); strings.Contains(prefix, "//") || strings.Contains(prefix, "../") || strings.ContainsFunc(prefix, unicode.IsControl) {
		return &Error{Reason: "has a prefix with //, ../ or control characters", Fix: "write prefix=folder/"}
	}
	if endpoint := values.Get("endpoint"); endpoint != "" && !isServer(endpoint) {
		return &Error{Reason: "has an endpoint that is no URL of a server", Fix: "write endpoint=https://host, with a port where it has one"}
	}
	for name := range values {
		right, known := parameters()[name]
		switch {
		case !known:
			return &Error{Reason: fmt.Sprintf("has the unknown parameter %q", name), Fix: "remove it; a bucket knows " + knownParameters()}
		case values.Get(name) != "" && !right.fits(values.Get(name)):
			return &Error{Reason: "has " + name + "=" + values.Get(name), Fix: right.fix}
		}
	}
	return nil
}

// isServer reports whether the text is the URL of a server, without a path.
func isServer(text string) bool {
	u, err := url.Parse(text)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && strings.Trim(u.Path, "/") == ""
}

// parameter describes the values of a bucket's parameter.
type parameter struct {
	fits func(value string) bool
	fix  string
}

// parameters are those of a bucket.
func parameters() map[string]parameter {
	text := parameter{fits: func(string) bool { return true }}
	choice := parameter{fits: func(v string) bool { _, err := strconv.ParseBool(v); return err == nil }, fix: "write true or false"}
	checksums := parameter{
		fits: func(v string) bool { return v == "when_supported" || v == "when_required" }, fix: "write when_supported or when_required",
	}
	return map[string]parameter{
		"prefix": text, "endpoint": text, "region": text, "profile": text,
		"role":      {fits: func(v string) bool { return strings.HasPrefix(v, "arn:") }, fix: "write the role's ARN, which begins with arn:"},
		"anonymous": choice, "dualstack": choice, "fips": choice, "hostname_immutable": choice, "use_path_style": choice,
		"request_checksum_calculation": checksums, "response_checksum_validation": checksums,
		"rate_limiter_capacity": {fits: func(v string) bool { _, err := strconv.ParseUint(v, 10, 31); return err == nil }, fix: "write a number"},
	}
}

func knownParameters() string { return strings.Join(slices.Sorted(maps.Keys(parameters())), ", ") }
