-- A worker in Lua that runs a loop written by hand beside a backend, as legacy_worker.py does in Python. Run as
-- `luajit legacy_worker.lua SERVE_PATH BACKEND_FILE LOOP_PATH READ_FD WRITE_FD`.

local serve_path, backend_file, loop_path, read_fd, write_fd = unpack(arg)

package.path = package.path .. ';' .. serve_path:gsub('/?deepstone/worker/[^/]*$', '') .. '/?.lua'
local serve = require 'deepstone.worker.serve'
local system = require 'deepstone.worker.system'
local npy = require 'deepstone.worker.npy'

local step, loss

-- A tensor of one part of the flat file of weights.
local function weights_of(request)
   local header = npy.header(request.weights.path)
   local storage, found = torch.FloatStorage(request.weights.path, false), {}
   for _, slice in ipairs(request.weights.slices) do
      local layer, name, offset, shape = unpack(slice)
      found[layer] = found[layer] or {}
      found[layer][name] = torch.FloatTensor(storage, header.offset / 4 + 1 + offset, torch.LongStorage(shape))
   end
   return found
end

function serve.known.make_by_hand(request)
   local ffi, samples, labels = require 'ffi', npy.read(request.batch.samples), npy.read(request.batch.labels)
   local images, classes = torch.FloatTensor(torch.LongStorage(samples.shape)), torch.LongTensor(labels.count)
   ffi.copy(images:data(), samples.values, 4 * samples.count)
   ffi.copy(classes:data(), labels.values, 8 * labels.count)
   step, loss = assert(loadfile(loop_path))()(weights_of(request), images, classes:add(1), request.request.threads)
   return {}
end

function serve.known.by_hand(request)
   local start = system.clock()
   for _ = 1, request.steps do
      step()
   end
   return {total_s = system.clock() - start, loss = string.format('%.17g', loss())}
end

for name, run in pairs(serve.known) do
   serve.known[name] = function(request)
      local before_s = system.cpu_s()
      local reply = run(request)
      reply.cpu_used_s = system.cpu_s() - before_s
      return reply
   end
end

serve.main(backend_file, tonumber(read_fd), tonumber(write_fd))
