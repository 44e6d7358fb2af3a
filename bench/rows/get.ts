import { create, toBinary } from '@bufbuild/protobuf'
import { GetIdentityRequestSchema } from '../../src/gen/taproot/iam/v2/identities_pb.ts'
import { subjects } from '../data/generate.ts'
import type { Environment } from '../environment.ts'
import type { GrpcLoad } from '../load/load.ts'
import { compare, type Comparison } from '../measure.ts'
import { startBareGrpc, startBareKoa } from '../subjects/bare-server.ts'
import { bareLoad, gets, taprootLoad } from './loads.ts'
import { ratioRow, type Row, type RowGroup } from './row.ts'

const grpcPath = '/taproot.iam.v2.IdentitiesService/GetIdentity'
const grpcConnections = 4

async function compareToKoa(environment: Environment, reads: 'linearizable' | 'bounded'): Promise<Comparison> {
  const { baseRecords: records, connections, rounds } = environment.scale
  const server = await environment.taproot({ records, ...(reads === 'bounded' ? { reads } : {}) })
  const { etcd, plan } = await environment.stored(records)
  const paths = plan.someIdentities.map((uid) => `/iam/v2/identities/${uid}`)
  const load = await taprootLoad(server, subjects.member, { connections, requests: gets(paths) })
  const answer = await server.call(await server.tokenOf(subjects.member), paths[1] ?? '')
  const koa = await startBareKoa(JSON.stringify(answer))
  try {
    return await environment.withGenerators([load, bareLoad(koa, load)], async ([ours, theirs]) => {
      const first = { name: 'Taproot', generator: ours, pids: [server.pid, etcd.pid] }
      return compare(first, { name: 'bare Koa', generator: theirs, pids: [koa.pid] }, rounds)
    })
  } finally {
    await koa.stop()
  }
}

async function overRest(environment: Environment): Promise<Row> {
  const row = { id: 'get-rest', title: 'GET one record, REST, to a bare Koa route', goal: { atLeast: 0.6 } }
  return ratioRow(row, await compareToKoa(environment, 'linearizable'))
}

async function boundedOverRest(environment: Environment): Promise<Row> {
  const row = { id: 'get-rest-bounded', title: 'for comparison: GET with bounded reads, REST, to a bare Koa route' }
  return ratioRow(row, await compareToKoa(environment, 'bounded'))
}

async function overGrpc(environment: Environment): Promise<Row> {
  const { baseRecords: records, connections, rounds } = environment.scale
  const server = await environment.taproot({ records })
  const { etcd, plan } = await environment.stored(records)
  const load: GrpcLoad = {
    kind: 'grpc',
    port: server.port,
    connections: grpcConnections,
    streams: connections / grpcConnections,
    path: grpcPath,
    headers: { authorization: `Bearer ${await server.tokenOf(subjects.member)}` },
    messages: plan.someIdentities.map((uid) => Buffer.from(toBinary(GetIdentityRequestSchema, create(GetIdentityRequestSchema, { uid }))).toString('base64')),
  }
  return environment.withGenerators([load], async ([ours]) => {
    const { bodyBytes, requests } = await ours.round(300)
    // A gRPC response has five bytes before its message.
    const bare = await startBareGrpc(grpcPath, Buffer.alloc(Math.max(0, Math.round(bodyBytes / requests) - 5)))
    try {
      return await environment.withGenerators([{ ...load, port: bare.port }], async ([theirs]) => {
        const first = { name: 'Taproot', generator: ours, pids: [server.pid, etcd.pid] }
        const comparison = await compare(first, { name: 'bare grpc-js', generator: theirs, pids: [bare.pid] }, rounds)
        return ratioRow({ id: 'get-grpc', title: 'GET one record, gRPC, to a bare grpc-js method', goal: { atLeast: 0.6 } }, comparison)
      })
    } finally {
      await bare.stop()
    }
  })
}

/** Reads of one record, compared with servers that do no other work. */
export const getRows: RowGroup = {
  name: 'get',
  about: 'GET of one record over REST and gRPC, against a bare Koa route and a bare grpc-js method',
  needs: 'etcd',
  rows: [
    { id: 'get-rest', measure: overRest },
    { id: 'get-rest-bounded', measure: boundedOverRest },
    { id: 'get-grpc', measure: overGrpc },
  ],
}
