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

// DefaultFile is the configuration file that is read if none is named and it exists.
const DefaultFile = "sexton.yaml"

//go:embed defaults.yaml
var defaultLists []byte

// defaults returns the default lists, from an embedded file. Other defaults are in the
// tags of Config.
func defaults() (c Config) {
	root, _ := yamlfile.Parse("defaults.yaml", defaultLists)
	_, _ = root.Decode("", &c, nil)
	return c
}

// Options are the command line flags and the environment.
type Options struct {
	// Path is --config. If it is empty, SEXTON_CONFIG is used, then DefaultFile.
	Path string
	// DatabaseURL is --database-url.
	DatabaseURL string
	// Environ is the environment in os.Environ's form.
	Environ []string
	// Dir is the folder of relative paths, by default the working directory. Paths in the
	// file are relative to the folder of the file.
	Dir string
	// WithoutURL accepts a configuration without databases or without their URLs, for
	// commands that only print it.
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

// aboutDatabases reports whether an earlier problem explains why there is no database.
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

// readFile returns the path of the file, or "" if there is none, and its content, or nil
// if that cannot be read.
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

// resolve makes path relative to dir unless it is absolute or dir is the working
// directory.
func resolve(dir, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}

// resolvePaths makes the paths in c relative to dir if a variable sets them, or if there
// is no file. Otherwise they are relative to the folder of the file.
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

// AbsoluteBucket returns a file:// URL with an absolute path. A relative path starts at
// dir.
func AbsoluteBucket(bucket URL, dir string) URL {
	if path, ok := strings.CutPrefix(string(bucket), "file://"); ok && path != "" && path[0] != '/' {
		if absolute, err := filepath.Abs(resolve(dir, path)); err == nil {
			return URL("file://" + filepath.ToSlash(absolute))
		}
	}
	return bucket
}
