import { createRequire } from 'node:module'
import { clone, create, toBinary } from '@bufbuild/protobuf'
import {
  FileDescriptorProtoSchema,
  ServiceDescriptorProtoSchema,
  type FileDescriptorProto,
  FieldDescriptorProto_Label,
  FieldDescriptorProto_Type,
} from '@bufbuild/protobuf/wkt'
import type { Server } from '@grpc/grpc-js'
import type * as Reflection from '@grpc/reflection'
import { serviceAliases } from '../aliases.ts'

/**
 * The file descriptor of gRPC's public health-checking protocol, `grpc/health/v1/health.proto`, for reflection. The package that serves it has no descriptor
 * that all clients accept.
 */
const healthDescriptor: FileDescriptorProto = create(FileDescriptorProtoSchema, {
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

/** The files and services that reflection describes. */
export interface ReflectionOptions {
  /** All file descriptors, including imports. */
  readonly fileDescriptors: readonly FileDescriptorProto[]
  readonly namespaces?: readonly string[]
}

/** Whether a path is a method of reflection, and the preparation of its first call. */
export interface LazyReflection {
  serves(path: string): boolean
  /** Adds the services to the server. Call it before the server looks up the handler of such a path. */
  load(): void
}

const paths: ReadonlySet<string> = new Set(['v1', 'v1alpha'].map((version) => `/grpc.reflection.${version}.ServerReflection/ServerReflectionInfo`))

/**
 * Serves gRPC server reflection v1 and v1alpha. It describes services under their own names and under every alias. The file of an alias contains only
 * services, which refer to Taproot's messages. The library is loaded and the files are indexed at the first call: most servers get none, and it takes a tenth of a start.
 */
export function lazyReflection(server: Server, options: ReflectionOptions): LazyReflection {
  let isLoaded = false
  return {
    serves: (path) => paths.has(path),
    load() {
      if (isLoaded) return
      addReflection(server, options)
      isLoaded = true
    },
  }
}

function addReflection(server: Server, options: ReflectionOptions): void {
  const { ReflectionService } = createRequire(import.meta.url)('@grpc/reflection') as typeof Reflection
  const aliases = options.fileDescriptors.flatMap((file) => aliasFiles(file, options.namespaces ?? []))
  const fileDescriptorProtos = [...options.fileDescriptors, ...aliases, healthDescriptor].map((file) => Buffer.from(toBinary(FileDescriptorProtoSchema, file)))
  // Reflection only reads the encoded files of a proto-loader package definition.
  const definition = { files: { fileDescriptorProtos } } as unknown as ConstructorParameters<typeof ReflectionService>[0]
  new ReflectionService(definition).addToServer(server)
}

function aliasFiles(file: FileDescriptorProto, namespaces: readonly string[]): FileDescriptorProto[] {
  const files = new Map<string, FileDescriptorProto>()
  for (const service of file.service) {
    for (const alias of serviceAliases(`${file.package}.${service.name}`, namespaces)) {
      const packageName = alias.slice(0, alias.lastIndexOf('.'))
      const aliasFile = files.get(packageName) ?? create(FileDescriptorProtoSchema, aliasOf(file, packageName))
      aliasFile.service.push(clone(ServiceDescriptorProtoSchema, service))
      files.set(packageName, aliasFile)
    }
  }
  return [...files.values()]
}

function aliasOf(file: FileDescriptorProto, packageName: string): { name: string; package: string; syntax: string; dependency: string[] } {
  const base = file.name.slice(file.name.lastIndexOf('/') + 1)
  return { name: `${packageName.replaceAll('.', '/')}/${base}`, package: packageName, syntax: 'proto3', dependency: [file.name, ...file.dependency] }
}
