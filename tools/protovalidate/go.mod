// This module only pins the version of validate.proto for scripts/generate. It holds no Go package, so
// `go mod tidy` would drop the line below; that is why it stands apart from the tools module: do not tidy it.
module github.com/waterclock-io/waterclock/tools/protovalidate

go 1.26.0

require github.com/bufbuild/protovalidate v1.2.2
