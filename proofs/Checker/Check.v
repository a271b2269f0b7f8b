(** * The checker: a plan goes in, a boolean comes out

    Everything is binary integers and lists, so that [vm_compute] runs it; [&&&] is lazy, so that cheap checks
    guard the enumerations behind them. *)

From Coq Require Import ZArith List Bool.
From Redistrib.Checker Require Import Spec.
Import ListNotations.
Open Scope Z_scope.
Open Scope lazy_bool_scope.

(** ** Small tools *)

Definition mem (d : Z) (l : list Z) : bool := existsb (Z.eqb d) l.

Fixpoint distinct (l : list Z) : bool :=
  match l with
  | [] => true
  | x :: r => negb (mem x r) &&& distinct r
  end.

Fixpoint all2 {A B} (f : A -> B -> bool) (l : list A) (m : list B) : bool :=
  match l, m with
  | [], [] => true
  | x :: r, y :: s => f x y &&& all2 f r s
  | _, _ => false
  end.

Definition same : point -> point -> bool := all2 Z.eqb.

Definition divides : point -> point -> bool := all2 (fun x y => y mod x =? 0).

(** Are these the numbers of a list, each once? *)
Definition partition (all l : list device) : bool :=
  (len l =? len all) &&& forallb (fun d => mem d all) l &&& distinct l &&& forallb (fun d => mem d l) all.

(** All pairs of a list, each tested once. *)
Fixpoint pairwise {A} (f : A -> A -> bool) (l : list A) : bool :=
  match l with
  | [] => true
  | x :: r => forallb (f x) r &&& pairwise f r
  end.

(** ** Boxes as lists of intervals, the upper end excluded *)

Definition box := list (Z * Z).
Definition box_at (lo ext : point) : box := combine lo (plus lo ext).

Definition within : box -> box -> bool := all2 (fun i j => (fst j <=? fst i) && (snd i <=? snd j)).

Fixpoint apart (b c : box) : bool :=
  match b, c with
  | i :: b', j :: c' => (snd i <=? fst j) || (snd j <=? fst i) || apart b' c'
  | _, _ => false
  end.

(** Boxes that make up what is left of [b] when [c] is taken away. *)
Fixpoint cut (b c : box) : list box :=
  match b, c with
  | (l, h) :: b', (l', h') :: c' =>
      (if l <? l' then [(l, Z.min h l') :: b'] else []) ++
      (if h' <? h then [(Z.max l h', h) :: b'] else []) ++
      (if Z.max l l' <? Z.min h h' then map (cons (Z.max l l', Z.min h h')) (cut b' c') else [])
  | _, _ => []
  end.

Definition cut_all (b : box) (cs : list box) : list box :=
  fold_left (fun left c => flat_map (fun x => cut x c) left) cs [b].

Definition covered (b : box) (cs : list box) : bool :=
  match cut_all b cs with [] => true | _ => false end.

(** ** Meshes, types, placements *)

Definition check_mesh (m : mesh) : bool :=
  forallb (Z.leb 1) (axis_sizes m) &&& (len (device_at m) =? devices m) &&& forallb (Z.leb 0) (device_at m) &&&
  distinct (device_at m).

Definition check_type (m : mesh) (t : type) : bool :=
  forallb (fun x => is_device (len (axis_sizes m)) x) (flat_map axes t) &&&
  distinct (flat_map axes t) &&&
  forallb (fun e => (0 <=? tile e) && (tile e * prod (map (entry 0 (axis_sizes m)) (axes e)) =? size e)) t.

Definition check_placement (n : Z) (s : point) (p : placement) : bool :=
  all2 (fun e g => (1 <=? e) && (1 <=? g) && (e mod g =? 0)) s (grid p) &&&
  (len (index p) =? n) &&& forallb (fun row => inside (grid p) row ||| same row (map (fun _ => -1) s)) (index p).

(** ** Steps *)

Section Steps.
  Variables (n : Z) (s : point) (b a : placement).
  Let tb := tile_of s b.
  Let ta := tile_of s a.
  Let ob := offset_of s b.
  Let oa := offset_of s a.
  Let all_devices (f : device -> bool) : bool := forallb f (range n).
  Let holders : list device := filter (has_tile b) (range n).

  Definition check_slice : bool :=
    divides ta tb &&&
    all_devices (fun d => negb (has_tile a d) ||| has_tile b d &&& within (box_at (oa d) ta) (box_at (ob d) tb)).

  Definition check_groups (all : list device) (groups : list (list device)) : bool :=
    partition all (concat groups) &&&
    match groups with [] => true | g :: rest => forallb (fun h => len h =? len g) rest end.

  (** The share from [m], for cell [c] of [d]'s new tile, lies in [m]'s tile and where the cell says. *)
  Definition check_share (chunk : point) (d m : device) (c : point) : bool :=
    let skip := beyond (ob m) (oa d) in
    all2 Z.leb (plus skip chunk) tb &&& same (plus (ob m) skip) (plus (oa d) (times c chunk)).

  Definition check_members (chunk : point) (groups : list (list device)) : bool :=
    let factors := quotient ta chunk in
    check_groups holders groups &&& all_devices (fun d => Bool.eqb (has_tile a d) (has_tile b d)) &&&
    divides chunk ta &&& divides chunk tb &&&
    forallb (fun g => len g =? prod factors) groups &&&
    let cs := cells factors in
    forallb (fun g => forallb (fun d => all2 (check_share chunk d) g cs) g) groups.

  Definition check_one_way (pairs : list (device * device)) : bool :=
    forallb (fun p => is_device n (fst p) && is_device n (snd p) && negb (fst p =? snd p)) pairs &&&
    distinct (map fst pairs) &&& distinct (map snd pairs).

  Definition check_permute (pairs : list (device * device)) : bool :=
    check_one_way pairs &&& forallb (fun p => has_tile b (fst p)) pairs &&& same ta tb &&&
    all_devices (fun d =>
      let m := match find (fun p => snd p =? d) pairs with Some (m, _) => m | None => d end in
      Bool.eqb (has_tile a d) (has_tile b m) &&& same (oa d) (ob m)).

  Definition share_box (h : share) : box := box_at (corner h) (extent h).

  Definition check_travel (h : share) : bool :=
    is_holder n b (src h) &&& is_holder n a (dst h) &&&
    (len (corner h) =? len s) &&& (len (extent h) =? len s) &&& forallb (Z.leb 1) (extent h) &&&
    within (share_box h) (box_at (ob (src h)) tb) &&&
    within (share_box h) (box_at (oa (dst h)) ta) &&&
    apart (share_box h) (box_at (ob (dst h)) tb).

  Definition check_round (shares : list share) (r : Z) : bool :=
    check_one_way (map (fun h => (src h, dst h)) (in_round r shares)).

  (** Rounds are numbered from 0 without gaps. *)
  Definition check_round_number (shares : list share) (h : share) : bool :=
    (round h =? 0) || (0 <? round h) && mem (round h - 1) (map round shares).

  Definition check_arrivals (shares : list share) (d : device) : bool :=
    let boxes := map share_box (to_device d shares) in
    let kept := if has_tile b d then [box_at (ob d) tb] else [] in
    pairwise apart boxes &&& (negb (has_tile a d) ||| covered (box_at (oa d) ta) (kept ++ boxes)).

  Definition check_exchange (shares : list share) : bool :=
    forallb check_travel shares &&&
    forallb (check_round_number shares) shares &&&
    forallb (fun h => check_round shares (round h)) shares &&&
    all_devices (check_arrivals shares).

  Definition check_action (x : action) : bool :=
    match x with
    | DynSlice => check_slice
    | AllGather groups => same (smaller tb ta) tb &&& check_members tb groups
    | AllToAll groups => check_members (smaller tb ta) groups
    | AllPermute pairs => check_permute pairs
    | Exchange _ shares => check_exchange shares
    end.
End Steps.

(** ** Plans *)

Section Plans.
  Variable p : plan.
  Let n := device_count p.
  Let s := array_shape p.

  Definition check_same_place (t t' : point) (w w' : device -> bool) (o o' : device -> point) : bool :=
    same t t' &&& forallb (fun d => Bool.eqb (w d) (w' d) &&& (negb (w d) ||| same (o d) (o' d))) (range n).

  (** The steps are a path, and each passes the test, given its placements and what it does. *)
  Variable passes : placement -> placement -> action -> bool.

  Fixpoint check_path (t : point) (w : device -> bool) (o : device -> point) (ss : list step) : bool :=
    match ss with
    | [] =>
        check_same_place t (local_shape (target p)) w (has_device (target_mesh p))
          o (base_offset (target_mesh p) (target p))
    | st :: rest =>
        match lookup (placements p) (before st), lookup (placements p) (after st) with
        | Some b, Some a =>
            check_same_place t (tile_of s b) w (has_tile b) o (offset_of s b) &&&
            passes b a (act st) &&&
            check_path (tile_of s a) (has_tile a) (offset_of s a) rest
        | _, _ => false
        end
    end.

  Definition check_steps : bool :=
    check_path (local_shape (source p)) (has_device (source_mesh p)) (base_offset (source_mesh p) (source p)) (steps p).
End Plans.

Definition check_bound (limit : Z) (t : point) : bool := prod t <=? limit.

Definition check_full_step (p : plan) (limit : Z) (b a : placement) (x : action) : bool :=
  check_bound limit (tile_of (array_shape p) a) &&& check_action (device_count p) (array_shape p) b a x.

(** *** Arrays without elements

    Nothing moves, and every promise on data holds of itself; what is left is the rules of the collectives and
    the path. But offsets in an empty dimension are all 0 and say nothing. So that such a plan is held to
    the same tiles as any other, its steps must also pass where the empty dimensions are filled. *)

Definition hollow (t : point) : bool := existsb (Z.eqb 0) t.

Definition check_empty_action (n : Z) (b : placement) (x : action) : bool :=
  match x with
  | DynSlice => true
  | AllGather groups | AllToAll groups => check_groups (filter (has_tile b) (range n)) groups
  | AllPermute pairs => check_one_way n pairs &&& forallb (fun p => has_tile b (fst p)) pairs
  | Exchange _ shares => match shares with [] => true | _ => false end
  end.

Definition check_empty_step (p : plan) (limit : Z) (b a : placement) (x : action) : bool :=
  let tb := tile_of (array_shape p) b in let ta := tile_of (array_shape p) a in
  check_bound limit ta &&& hollow tb &&& hollow ta &&& hollow (smaller tb ta) &&& check_empty_action (device_count p) b x.

(** Every tile count of the plan divides this. *)
Definition filling (p : plan) : Z :=
  devices (source_mesh p) * devices (target_mesh p) * prod (concat (map grid (placements p))).

Definition fill_type (filler : Z) (m : mesh) (t : type) : type :=
  map (fun e => if size e =? 0 then Dim (filler / prod (map (entry 0 (axis_sizes m)) (axes e))) (axes e) filler else e) t.

Definition fill (p : plan) : plan :=
  Plan (fill_type (filling p) (source_mesh p) (source p)) (source_mesh p)
       (fill_type (filling p) (target_mesh p) (target p)) (target_mesh p) (placements p) (steps p).

Definition check_filled_step (p : plan) (b a : placement) (x : action) : bool :=
  match x with
  | Exchange _ [] => true
  | _ => check_action (device_count p) (array_shape p) b a x
  end.

Definition check_filled (p : plan) : bool :=
  forallb (check_placement (device_count p) (array_shape p)) (placements p) &&& check_steps p (check_filled_step p).

(** *** All together *)

Definition check_plan_within (p : plan) (limit : Z) : bool :=
  check_mesh (source_mesh p) &&& check_mesh (target_mesh p) &&&
  check_type (source_mesh p) (source p) &&& check_type (target_mesh p) (target p) &&&
  same (global_shape (target p)) (global_shape (source p)) &&&
  check_bound limit (local_shape (source p)) &&&
  if hollow (local_shape (source p))
  then check_filled (fill p) &&& check_steps p (check_empty_step p limit)
  else forallb (check_placement (device_count p) (array_shape p)) (placements p) &&&
       check_steps p (check_full_step p limit).

(** As the library's [verify] without a bound of one's own: no tile above the larger of source and target. *)
Definition check_plan (p : plan) : bool := check_plan_within p (larger_end p).
