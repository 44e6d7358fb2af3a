import { create } from '@bufbuild/protobuf'
import { FieldDescriptorProto_Label, FieldDescriptorProto_Type, FileDescriptorProtoSchema, type FileDescriptorProto } from '@bufbuild/protobuf/wkt'

/** `grpc/health/v1/health.proto`, the public health-checking protocol of gRPC, for reflection: the package that serves it brings no descriptor that all clients take. */
export const healthDescriptor: FileDescriptorProto = create(FileDescriptorProtoSchema, {
  name: 'grpc/health/v1/health.proto',
  package: 'grpc.health.v1',
  syntax: 'proto3',
  messageType: [
    {
      name: 'HealthCheckRequest',
      field: [{ name: 'service', jsonName: 'service', number: 1, label: FieldDescriptorProto_Label.OPTIONAL, type: FieldDescriptorProto_Type.STRING }],
    },
    {
      name: 'HealthCheckResponse',
      field: [
        {
          name: 'status',
          jsonName: 'status',
          number: 1,
          label: FieldDescriptorProto_Label.OPTIONAL,
          type: FieldDescriptorProto_Type.ENUM,
          typeName: '.grpc.health.v1.HealthCheckResponse.ServingStatus',
        },
      ],
      enumType: [{ name: 'ServingStatus', value: ['UNKNOWN', 'SERVING', 'NOT_SERVING', 'SERVICE_UNKNOWN'].map((name, number) => ({ name, number })) }],
    },
  ],
  service: [
    {
      name: 'Health',
      method: (['Check', 'Watch'] as const).map((name) => ({
        name,
        inputType: '.grpc.health.v1.HealthCheckRequest',
        outputType: '.grpc.health.v1.HealthCheckResponse',
        serverStreaming: name === 'Watch',
      })),
    },
  ],
})
