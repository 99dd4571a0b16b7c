package blobstore_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/blobstore"
)

func TestParseURL(t *testing.T) {
	t.Parallel()
	for address, message := range map[string]string{
		"file:///var/lib/diffs":                    "",
		"file://localhost/var/lib/diffs?prefix=a/": "",
		"s3://bucket?region=x&prefix=a":            "",
		"s3://bucket?region=x&endpoint=http://h":   "",
		"s3://bucket?prefix=team%3Ba/100%25/%23/":  "",
		"://hunter2":                               "is not a URL (write file:///folder or s3://bucket?region=…)",
		"diffs":                                    `has the scheme "" (write file:///folder or s3://bucket?region=…)`,
		"s3://key:hunter2@bucket?region=x":         "contains credentials (set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment instead)",
		"file://key:hunter2@/x":                    "contains credentials (set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment instead)",
		"file:diffs":                               "does not contain an absolute path (write file:///folder, with three slashes)",
		"file://relative/folder":                   "does not contain an absolute path (write file:///folder, with three slashes)",
		"file:///x?prefix=../":                     `has the prefix "../", which is not a subfolder (write prefix=name/, with a trailing slash)`,
		"file:///x?prefix=a":                       `has the prefix "a", which is not a subfolder (write prefix=name/, with a trailing slash)`,
		"file:///x?create=1":                       `has the unknown parameter "create" (remove it; the only parameter of a folder is prefix)`,
		"s3://bucket/folder":                       "does not name a bucket (write s3://bucket?region=…, and a folder in it as prefix=folder/)",
		"s3://bucket?prefix=a//b/":                 "has a prefix with //, ../ or control characters (write prefix=folder/)",
		"s3://bucket?region=x&prefix=team;a/":      "has parameters that cannot be parsed (write %25 for %, and %3B for ;)",
		"file:///x?prefix=100%/":                   "has parameters that cannot be parsed (write %25 for %, and %3B for ;)",
		"s3://bucket?region=x&prefix=a#b/":         "contains a fragment after # (write %23 for a literal #)",
		"file:///x#":                               "contains a fragment after # (write %23 for a literal #)",
		"s3://bucket?prefix=a/&region=x&prefix=b/": `has the parameter "prefix" more than once (remove all but one)`,
		"file:///x?prefix=a/&prefix=a/":            `has the parameter "prefix" more than once (remove all but one)`,
		"s3://bucket?endpoint=host:9000":           "has an endpoint that is not the URL of a server (write endpoint=https://host, with a port if it needs one)",
		"s3://bucket?endpoint=http://h/a":          "has an endpoint that is not the URL of a server (write endpoint=https://host, with a port if it needs one)",
		"s3://bucket?region=x&profile=me": `has the unknown parameter "profile" (remove it; a bucket has endpoint, prefix and region, ` +
			"and everything else is set by the variables of the AWS SDK, such as AWS_PROFILE)",
	} {
		u, err := blobstore.ParseURL(address)
		if message == "" {
			require.NoError(t, err, address)
			require.Equal(t, address, u.String())
			continue
		}
		var refused *blobstore.URLError
		require.ErrorAs(t, err, &refused, address)
		require.Equal(t, message, err.Error(), address)
	}
}
