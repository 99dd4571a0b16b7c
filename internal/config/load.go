package config

import (
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"sexton/internal/problem"
	"sexton/internal/yamlfile"
)

// DefaultFile is the configuration file that Load reads if it exists and no other file is
// named.
const DefaultFile = "sexton.yaml"

//go:embed defaults.yaml
var defaultLists []byte

// defaults returns a Config with GitLab's lists from the embedded defaults.yaml. The
// field tags of Config have the other defaults.
func defaults() (c Config) {
	root, _ := yamlfile.Parse("defaults.yaml", defaultLists)
	_, _ = root.Decode("", &c, nil)
	return c
}

// Options are the command line flags and the environment of the process.
type Options struct {
	// Path is the value of --config. If it is empty, Load uses SEXTON_CONFIG, and then
	// DefaultFile.
	Path string
	// DatabaseURL is the value of --database-url.
	DatabaseURL string
	// Environ is the environment in the form of os.Environ.
	Environ []string
	// Dir is the folder to which paths in flags and variables are relative. The default
	// is the working directory. Paths in the file are relative to the folder of the file.
	Dir string
	// WithoutURL accepts a configuration without databases, or without their URLs.
	// Commands that only print the configuration set it.
	WithoutURL bool
}

var databaseURL = regexp.MustCompile(`^databases\.[^.]+\.url$`)

// Load reads, merges and checks the configuration. It connects to no database. The error
// is a problem.List with all findings.
func Load(o Options) (*Config, error) {
	l := loader{options: o, environ: variables(o.Environ)}
	c := l.load()
	if o.WithoutURL {
		l.problems = slices.DeleteFunc(l.problems, func(p problem.Problem) bool {
			return p.Message == noDatabase("").Message || databaseURL.MatchString(p.Key)
		})
	}
	if err := l.problems.Err(); err != nil {
		return nil, err
	}
	return c, nil
}

func variables(environ []string) map[string]string {
	out := make(map[string]string, len(environ))
	for _, entry := range environ {
		if name, value, ok := strings.Cut(entry, "="); ok {
			out[name] = value
		}
	}
	return out
}

type loader struct {
	options  Options
	environ  map[string]string
	problems problem.List
}

func (l *loader) load() *Config {
	path, root := l.readFile()
	if root == nil {
		return nil
	}
	l.override(root)

	c := defaults()
	var found problem.List
	c.positions, found = root.Decode("", &c, func(name string) (string, bool) {
		value, ok := l.environ[name]
		return value, ok
	})
	l.problems.Add(found...)
	c.Path = path
	c.resolvePaths(l.options.Dir, filepath.Dir(path))
	v := validator{config: &c, before: l.problems}
	v.validate()
	l.problems.Add(v.problems...)
	if len(c.Databases) == 0 && !l.aboutDatabases() {
		l.problems.Add(noDatabase(path))
	}
	return &c
}

// aboutDatabases reports whether a problem of the databases has been found already. The
// problem "no database is configured" would then be redundant.
func (l *loader) aboutDatabases() bool {
	return slices.ContainsFunc(l.problems, func(p problem.Problem) bool {
		return strings.HasPrefix(p.Key, "databases") || strings.HasPrefix(p.Key, prefix+"DATABASES")
	})
}

func noDatabase(path string) problem.Problem {
	p := problem.Problem{
		Position: problem.Position{File: path},
		Message:  "no database is configured",
		Fix: `set DATABASE_URL or --database-url, or write into ` + DefaultFile +
			`: databases: {main: {url: "postgres://user:password@host:5432/database"}}`,
	}
	if path != "" {
		p.Key = "databases"
	}
	return p
}

// readFile returns the path and the content of the configuration file. Without a file,
// the path is "" and the content is empty. If the file cannot be read, the content is
// nil.
func (l *loader) readFile() (string, *yamlfile.Node) {
	path, source := l.options.Path, "--config"
	if path == "" {
		path, source = l.environ["SEXTON_CONFIG"], "SEXTON_CONFIG"
	}
	explicit := path != ""
	if !explicit {
		path = DefaultFile
	}
	path = resolve(l.options.Dir, path)
	data, err := yamlfile.ReadFile(path)
	switch {
	case err == nil:
	case !explicit && errors.Is(err, fs.ErrNotExist):
		root, _ := yamlfile.Parse("", nil)
		return "", root
	default:
		named := ""
		if explicit {
			named = ", which " + source + " names,"
		}
		l.problems.Add(problem.Problem{
			Position: problem.Position{File: path},
			Message:  fmt.Sprintf("the configuration file%s cannot be read: %v", named, err),
		})
		return path, nil
	}
	root, found := yamlfile.Parse(path, data)
	l.problems.Add(found...)
	return path, root
}

// resolve joins a relative path to dir. It returns absolute paths unchanged.
func resolve(dir, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}

// resolvePaths resolves the relative paths in c. A path from the file is relative to
// fileDir. A path from a variable, or a default without a file, is relative to dir.
func (c *Config) resolvePaths(dir, fileDir string) {
	base := func(key string) string {
		if fileDir == "." || c.positions[key].Source != "" {
			return dir
		}
		return fileDir
	}
	c.LooseForeignKeys.Definitions = slices.Clone(c.LooseForeignKeys.Definitions)
	for i, path := range c.LooseForeignKeys.Definitions {
		if path != "" {
			c.LooseForeignKeys.Definitions[i] = resolve(base("loose_foreign_keys.definitions"), path)
		}
	}
	for key, path := range map[string]*string{
		"http.password_file": &c.HTTP.PasswordFile,
		"http.token_file":    &c.HTTP.TokenFile,
	} {
		if *path != "" {
			*path = resolve(base(key), *path)
		}
	}
	c.ExternalDiffs.Bucket = AbsoluteBucket(c.ExternalDiffs.Bucket, base("external_diffs.bucket"))
}

// AbsoluteBucket makes the path of a file:// URL absolute. Relative paths are relative to
// dir.
func AbsoluteBucket(bucket URL, dir string) URL {
	if path, ok := strings.CutPrefix(string(bucket), "file://"); ok && path != "" && path[0] != '/' {
		if absolute, err := filepath.Abs(resolve(dir, path)); err == nil {
			return URL("file://" + filepath.ToSlash(absolute))
		}
	}
	return bucket
}
