package convert

import (
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/waterclock-io/waterclock/job/fielderr"
	waterclockv1 "github.com/waterclock-io/waterclock/proto/waterclock/v1"
)

// Masked returns current with the named fields taken from changed; changed itself where the mask is empty. Only whole fields of the spec can be named.
func Masked(current, changed *waterclockv1.JobSpec, mask *fieldmaskpb.FieldMask) (*waterclockv1.JobSpec, error) {
	if len(mask.GetPaths()) == 0 {
		return changed, nil
	}
	var errs fielderr.FieldErrors
	out := proto.CloneOf(current)
	to, from := out.ProtoReflect(), changed.ProtoReflect()
	fields := to.Descriptor().Fields()
	for _, path := range mask.GetPaths() {
		fd := fields.ByName(protoreflect.Name(path))
		if fd == nil {
			errs = append(errs, &fielderr.FieldError{Field: "update_mask", Given: path, Reason: "is no field of spec", Allowed: fieldNames(fields)})
			continue
		}
		// payload and json are one thing: naming either takes whichever is given, and the other does not stay.
		if one := fd.ContainingOneof(); one != nil {
			if old := to.WhichOneof(one); old != nil {
				to.Clear(old)
			}
			if given := from.WhichOneof(one); given != nil {
				fd = given
			}
		}
		if from.Has(fd) {
			to.Set(fd, from.Get(fd))
		} else {
			to.Clear(fd)
		}
	}
	return out, errs.Err()
}

func fieldNames(fields protoreflect.FieldDescriptors) string {
	names := make([]string, fields.Len())
	for i := range names {
		names[i] = string(fields.Get(i).Name())
	}
	return strings.Join(names, ", ")
}
