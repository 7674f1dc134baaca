package convert

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// messageText shows a message in an error text.
func messageText(m protoreflect.Message) string {
	switch x := m.Interface().(type) {
	case *durationpb.Duration:
		if x.IsValid() && x.AsDuration().Abs() < 1<<62*time.Nanosecond {
			return x.AsDuration().String()
		}
		return fmt.Sprintf("%d s", x.GetSeconds())
	case *timestamppb.Timestamp:
		return givenTime(x)
	default:
		return "a " + string(m.Descriptor().Name())
	}
}

// dynamicZero returns an empty message of a generated type.
func dynamicZero(d protoreflect.MessageDescriptor) proto.Message {
	t, err := protoregistry.GlobalTypes.FindMessageByName(d.FullName())
	if err != nil {
		panic("convert: generated message is not registered: " + string(d.FullName()))
	}
	return t.Zero().Interface()
}
