-- A backend in Lua that needs LuaJIT alone: what the worker in Lua promises is tried with it. A step adds up the weights
-- and the batch. DEEPSTONE_SCRIPTED says what goes wrong.

local npy = require 'deepstone.worker.npy'

local Scripted = {}
Scripted.__index = Scripted

local fault = os.getenv 'DEEPSTONE_SCRIPTED'

function Scripted:versions()
   return {name = 'scripted', version = '1'}
end

function Scripted:build(job)
   if job.request.precision == 'bf16' then
      unsupported 'plain numbers only'
   elseif job.request.precision == 'tf32' then
      missing 'no such unit; plug one in'
   elseif fault == 'crash' then
      error 'it broke'
   elseif fault == 'memory' then
      error '$ Torch: not enough memory: you tried to allocate 9GB'
   elseif fault == 'die' then
      os.exit(3)
   end
   self.job, self.steps, self.sum = job, 0, 0
   self.weights, self.samples = npy.read(job.weights.path), npy.read(job.batch.samples)
   self.labels = npy.read(job.batch.labels)
end

function Scripted:phase()
   return self.job.request.phase
end

function Scripted:phases()
   return {'data', 'forward', 'backward', 'update'}
end

local function total(array)
   local sum = 0
   for place = 0, array.count - 1 do
      sum = sum + tonumber(array.values[place])
   end
   return sum
end

function Scripted:step()
   return function()
      print '{"event": "block"}'
      self.steps = self.steps + 1
      self.sum = total(self.weights) + total(self.samples) + total(self.labels)
   end
end

function Scripted:step_in_phases(set_timestamp)
   for phase = 1, 4 do
      self:step()()
      set_timestamp(phase)
   end
end

function Scripted:loss()
   return fault == 'nan' and 0 / 0 or self.sum * self.steps
end

function Scripted:observe()
   local found = {}
   for axis, value in pairs(self.job.request) do
      found[axis] = {value = value, source = 'set'}
   end
   found.threads = {value = self.steps, source = 'observed'}
   return found
end

function Scripted:arrays()
   local found = {}
   for place, slice in ipairs(self.job.weights.slices) do
      local layer, name, offset, shape = unpack(slice)
      found[place] = {layer .. '/' .. name, {kind = 'f4', shape = shape, values = self.weights.values + offset}}
   end
   return found
end

-- The layer that doubles.
function Scripted:layer(_, inputs, upstream)
   local found, source, array = {}, next(inputs)
   local doubled = npy.new('f8', array.count)
   for place = 0, array.count - 1 do
      doubled[place] = 2 * array.values[place]
   end
   found[1] = {'output', '', {kind = 'f8', shape = array.shape, values = doubled}}
   if upstream then
      found[2] = {'input', source, {kind = upstream.kind, shape = upstream.shape, values = upstream.values}}
   end
   return found
end

function Scripted:isolated_layer(name)
   local step = self:step()
   return {programs = {{'forward', step}, {'backward', step}}, beside = 'the name ' .. name}
end

function Scripted:in_place(steps)
   local found = {}
   for number = 1, steps do
      found[number] = {
         total_s = 10 * number, data_s = 1, update_s = 2, gaps_s = 0,
         layers = {{'conv1', 'forward', number}, {'conv1', 'backward', 2 * number}},
         other = {{'sums', 0.5}},
      }
   end
   return {method = 'scripted', rule = 'none', steps = found}
end

return function()
   if fault == 'import' then
      error "module 'torch' not found"
   end
   return setmetatable({}, Scripted)
end
