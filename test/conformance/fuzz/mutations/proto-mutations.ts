import { deflateSync, gzipSync } from 'node:zlib'
import { BinaryWriter, WireType } from '@bufbuild/protobuf/wire'
import { frame, type GrpcDraft } from '../requests/grpc-draft.ts'
import type { Random } from '../random.ts'

/** A change of a gRPC call after it was encoded: a row of a table. Changes the draft in place. */
export interface GrpcMutation {
  readonly name: string
  readonly apply: (draft: GrpcDraft, random: Random) => void
}

function bytes(name: string, change: (message: Buffer, random: Random) => Buffer): GrpcMutation {
  return { name: `proto: ${name}`, apply: (draft, random) => void (draft.message = change(draft.message, random)) }
}

function body(name: string, make: (message: Buffer, random: Random, draft: GrpcDraft) => readonly Buffer[], ending: GrpcDraft['ending'] = 'end'): GrpcMutation {
  return {
    name: `frame: ${name}`,
    apply: (draft, random) => {
      draft.body = make(draft.message, random, draft)
      draft.ending = ending
    },
  }
}

function compressed(name: string, encoding: string, make: (message: Buffer, random: Random) => Buffer): GrpcMutation {
  return body(name, (message, random, draft) => {
    draft.headers['grpc-encoding'] = encoding
    return [frame(make(message, random), { flag: 1 })]
  })
}

const insert = (message: Buffer, inner: Buffer, random: Random): Buffer => {
  const at = random.below(message.length + 1)
  return Buffer.concat([message.subarray(0, at), inner, message.subarray(at)])
}

const append = (message: Buffer, write: (writer: BinaryWriter) => BinaryWriter): Buffer => Buffer.concat([message, write(new BinaryWriter()).finish()])

const invalidUtf8 = ['ff', 'c0af', 'eda080', 'f4908080', 'e282', '80']
const bombBytes = 32 * 1024 * 1024
const bomb = gzipSync(Buffer.alloc(bombBytes))
const fieldNumbers = [0, 1, 2, 3, 4, 5, 100, 1000, 1001, 1003, 19_000, 2 ** 29 - 1]

function deepGroups(levels: number): Buffer {
  return Buffer.concat([Buffer.alloc(levels, (1 << 3) | 3), Buffer.alloc(levels, (1 << 3) | 4)])
}

/** Nests messages under one field number, as deep as the limit allows. */
function deepMessages(number: number, levels: number): Buffer {
  let inner = Buffer.alloc(0)
  for (let level = 0; level < levels; level++) inner = Buffer.from(new BinaryWriter().tag(number, WireType.LengthDelimited).bytes(inner).finish())
  return inner
}

/** Bytes that are not a message, or another message than expected. */
const messageBytes: readonly GrpcMutation[] = [
  bytes('cut off', (message, random) => message.subarray(0, random.below(message.length + 1))),
  bytes('random', (_message, random) => random.bytes(random.below(200))),
  bytes('flipped bits', (message, random) => {
    const copy = Buffer.from(message)
    for (let count = 1 + random.below(4); count > 0 && copy.length > 0; count--) {
      const at = random.below(copy.length)
      copy[at] = (copy[at] ?? 0) ^ (1 << random.below(8))
    }
    return copy
  }),
  bytes('bytes put in', (message, random) => insert(message, random.bytes(1 + random.below(8)), random)),
  bytes('endless varint', (message, random) => insert(message, Buffer.alloc(random.pick([9, 10, 11, 1000]), 0xff), random)),
  bytes('length beyond the end', (message) => Buffer.concat([message, Buffer.from([(1 << 3) | 2, 0xff, 0xff, 0xff, 0xff, 0x07])])),
  bytes('negative length', (message) => Buffer.concat([message, Buffer.from([(1 << 3) | 2, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01])])),
  bytes('other wire type', (message, random) => {
    const copy = Buffer.from(message)
    if (copy.length > 0) copy[0] = ((copy[0] ?? 0) & 0xf8) | random.below(8)
    return copy
  }),
  bytes('field of another type', (message, random) =>
    append(message, (writer) => writer.tag(random.pick(fieldNumbers.slice(1)), WireType.Varint).uint32(random.below(2 ** 31))),
  ),
  bytes('field number zero', (message) => Buffer.concat([message, Buffer.from([2, 1, 0])])),
  bytes('invalid UTF-8', (message, random) =>
    append(message, (writer) => writer.tag(random.pick(fieldNumbers.slice(1)), WireType.LengthDelimited).bytes(Buffer.from(random.pick(invalidUtf8), 'hex'))),
  ),
  bytes('huge unknown field', (message, random) =>
    append(message, (writer) => writer.tag(random.pick([500, 2 ** 29 - 1]), WireType.LengthDelimited).bytes(Buffer.alloc(900_000))),
  ),
  bytes('many unknown fields', (message) => Buffer.concat([message, Buffer.from('a00100'.repeat(200_000), 'hex')])),
  bytes('a field again and again', (message, random) =>
    Buffer.concat(Array.from({ length: Math.min(5000, Math.floor(900_000 / (message.length + 1))) }, () => message).concat(random.bytes(0))),
  ),
  bytes('deep groups', (_message, random) => deepGroups(random.pick([50, 101, 10_000, 400_000]))),
  bytes('group without an end', (message) => Buffer.concat([message, Buffer.alloc(100_000, (7 << 3) | 3)])),
  bytes('end of no group', (message) => Buffer.concat([message, Buffer.from([(1 << 3) | 4])])),
  bytes('deep messages', (_message, random) => deepMessages(random.pick([1, 2, 3]), random.pick([101, 2000]))),
  bytes('just below the limit', (message) =>
    append(message, (writer) => writer.tag(600, WireType.LengthDelimited).bytes(Buffer.alloc(Math.max(0, 1024 * 1024 - message.length - 10)))),
  ),
  bytes('above the limit', () => Buffer.alloc(1024 * 1024 + 1)),
  bytes('far above the limit', () => Buffer.alloc(5 * 1024 * 1024)),
]

/** Frames with a false header, or bytes that are not a frame. */
const frames: readonly GrpcMutation[] = [
  body('cut off', (message, random) => [frame(message).subarray(0, random.below(message.length + 5))]),
  body('length too large', (message) => [frame(message, { length: message.length + 10 })]),
  body('length too small', (message) => [frame(message, { length: Math.max(0, message.length - 1) })]),
  body('length of 4 GiB', (message) => [frame(message, { length: 2 ** 32 - 1 })]),
  body('none', () => []),
  body('empty', () => [Buffer.alloc(0)]),
  body('two', (message) => [frame(message), frame(message)]),
  body('many', (message) => Array.from({ length: 200 }, () => frame(message.subarray(0, 1000)))),
  body('something behind it', (message, random) => [frame(message), random.bytes(3)]),
  body('odd flag', (message, random) => [frame(message, { flag: random.pick([2, 3, 0x80, 0xff]) })]),
  body('compressed without an encoding', (message) => [frame(gzipSync(message), { flag: 1 })]),
  body('byte by byte', (message) => [...frame(message).subarray(0, 300)].map((byte) => Buffer.from([byte]))),
  body('cancelled', (message) => [frame(message)], 'cancel'),
  body('cancelled in the middle', (message) => [frame(message, { length: message.length + 5 })], 'cancel'),
  body('random', (_message, random) => [random.bytes(random.below(100))]),
  compressed('gzip', 'gzip', (message) => gzipSync(message)),
  compressed('gzip that is none', 'gzip', (message) => message),
  compressed('gzip, cut off', 'gzip', (message, random) => gzipSync(message).subarray(0, 3 + random.below(15))),
  compressed('gzip bomb', 'gzip', () => bomb),
  compressed('deflate', 'deflate', (message) => deflateSync(message)),
  compressed('deflate that is none', 'deflate', (message) => message),
  compressed('unknown encoding', 'snappy', (message) => message),
  compressed('identity, compressed', 'identity', (message) => message),
  compressed('odd encoding', 'gzip,gzip', (message) => gzipSync(message)),
]

/** Bytes of a call other than one well-formed message. */
export const protoMutations: readonly GrpcMutation[] = [...messageBytes, ...frames]
