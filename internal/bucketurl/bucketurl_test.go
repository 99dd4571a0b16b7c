package bucketurl_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/bucketurl"
)

func TestParse(t *testing.T) {
	t.Parallel()
	for address, message := range map[string]string{
		"file:///var/lib/diffs":                              "",
		"file://localhost/var/lib/diffs?prefix=a/":           "",
		"s3://bucket?region=x&prefix=a&use_path_style=false": "",
		"://hunter2":                       "is no URL (write file:///folder or s3://bucket?region=…)",
		"diffs":                            `has the scheme "" (write file:///folder or s3://bucket?region=…)`,
		"s3://key:hunter2@bucket?region=x": "holds credentials (set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment instead)",
		"file://key:hunter2@/x":            "holds credentials (set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment instead)",
		"file:diffs":                       "names no absolute path (write file:///folder, with three slashes)",
		"file://relative/folder":           "names no absolute path (write file:///folder, with three slashes)",
		"file:///x?prefix=../":             `has the prefix "../", which is no folder inside (write prefix=name/, with a slash at its end)`,
		"file:///x?prefix=a":               `has the prefix "a", which is no folder inside (write prefix=name/, with a slash at its end)`,
		"file:///x?create=1":               `has the unknown parameter "create" (remove it; a folder knows only prefix)`,
		"s3://bucket/folder":               "names no bucket (write s3://bucket?region=…, a folder in it as prefix=folder/)",
		"s3://bucket?prefix=a//b/":         "has a prefix with //, ../ or control characters (write prefix=folder/)",
		"s3://bucket?region=x&endpoint=http://h&profile=p&role=arn:aws:iam::1:role/r&anonymous=1&dualstack=f&fips=true&hostname_immutable=true" +
			"&request_checksum_calculation=when_required&response_checksum_validation=when_supported&rate_limiter_capacity=5": "",
		"s3://bucket?region=x&prefix=team;a/":      "has parameters that cannot be read (write %25 for %, and %3B for ;)",
		"file:///x?prefix=100%/":                   "has parameters that cannot be read (write %25 for %, and %3B for ;)",
		"s3://bucket?prefix=team%3Ba/100%25/%23/":  "",
		"s3://bucket?region=x&prefix=a#b/":         "has a part behind #, which belongs to no store (write %23 for a # that is meant so)",
		"file:///x#":                               "has a part behind #, which belongs to no store (write %23 for a # that is meant so)",
		"s3://bucket?prefix=a/&region=x&prefix=b/": `has the parameter "prefix" more than once (leave one of them)`,
		"file:///x?prefix=a/&prefix=a/":            `has the parameter "prefix" more than once (leave one of them)`,
		"s3://bucket?endpoint=host:9000":           "has an endpoint that is no URL of a server (write endpoint=https://host, with a port where it has one)",
		"s3://bucket?endpoint=http://h/a":          "has an endpoint that is no URL of a server (write endpoint=https://host, with a port where it has one)",
		"s3://bucket?fips=2":                       "has fips=2 (write true or false)",
		"s3://bucket?rate_limiter_capacity=-1":     "has rate_limiter_capacity=-1 (write a number)",
		"s3://bucket?role=me":                      "has role=me (write the role's ARN, which begins with arn:)",
		"s3://bucket?request_checksum_calculation=never": "has request_checksum_calculation=never " +
			"(write when_supported or when_required)",
		"s3://bucket?accelerate=true": `has the unknown parameter "accelerate" (remove it; a bucket knows anonymous, dualstack, endpoint, fips, ` +
			"hostname_immutable, prefix, profile, rate_limiter_capacity, region, request_checksum_calculation, " +
			"response_checksum_validation, role, use_path_style)",
		"s3://bucket?use_path_style=perhaps": "has use_path_style=perhaps (write true or false)",
	} {
		u, err := bucketurl.Parse(address)
		if message == "" {
			require.NoError(t, err, address)
			require.Equal(t, address, u.String())
			continue
		}
		var refused *bucketurl.Error
		require.ErrorAs(t, err, &refused, address)
		require.Equal(t, message, err.Error(), address)
	}
}
